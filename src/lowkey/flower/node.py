"""The client's side of a Flower app: one message in, one answer out, and what must be remembered in between.

Flower starts a new process for every message. What a client needs between the steps of a secure aggregation is in the
node's context, in memory; what it must never forget, in its ledger on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from numpy.typing import NDArray

from lowkey.analytics import Question
from lowkey.deployment import (
    LEDGER_FILE,
    LIST_FILE,
    POLICY_FILE,
    OwnKeys,
    note_error,
    note_training,
    read_enrolment,
    read_identity,
    read_policy,
    require_own,
    verify_keys_of,
)
from lowkey.errors import CannotContribute, ConfigError, InvalidInput, PolicyRefused
from lowkey.experiments import Config, parse, read
from lowkey.federation import Attendance, Client, ClientState, Request, Scheme, explain
from lowkey.flower.nodes import Greeting, note_version, sign_introduction
from lowkey.flower.sizes import AppModel, from_record, is_record, model_of_app, to_record
from lowkey.flower.wire import read_request, write_reply
from lowkey.privacy import ClientLedger
from lowkey.protocols import LocalUpdate, PersonTrainer, Trainer
from lowkey.rng import OSSecrets, ReplaySecrets, Secrets
from lowkey.secagg import MemberState, decode, encode
from lowkey.tasks import NodeSettings, client_of
from lowkey.types import ClientId, FloatArray

REPLAY_VARIABLE = "LOWKEY_INSECURE_REPLAY"
"""A number in this environment variable, at the server and at all nodes, replaces every secret: for tests only."""

_STATE = "lowkey"
_log = logging.getLogger(__name__)


def client_app(config: Path, *, mods: Sequence[Mod] = ()) -> ClientApp:
    """The app of a node.

    Parameters
    ----------
    config : Path
        TOML file that comes with the app. Its ``task`` is imported only for a step that trains.
    mods : sequence
        Flower's modifiers, called around every step.
    """
    app = ClientApp(mods=[keep_texts_here, *mods])

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        note_version(message.content)
        node = Node(read_app_config(config), context)
        return Message(node.greet(context).write(), reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        node = Node(read_app_config(config), context)
        return Message(node.answer(message), reply_to=message)

    app.query("agree")(answer)
    app.train("contribute")(answer)
    return app


def read_app_config(path: Path) -> Config:
    """The settings of an app, resolved; sums are always masked here: only a simulation may do without."""
    config = parse(read(path)).resolve()
    if config.privacy is None:
        return config
    return replace(config, privacy=replace(config.privacy, aggregation="masked"))


def secrets_from_environment() -> Secrets:
    """Secrets of the operating system, unless a test replays them."""
    seed = os.environ.get(REPLAY_VARIABLE)
    if seed is None:
        return OSSecrets()
    _log.warning("%s is set: secrets are replayed, nothing is private", REPLAY_VARIABLE)
    return ReplaySecrets(int(seed))


def keep_texts_here(message: Message, context: Context, step: Callable[[Message, Context], Message]) -> Message:
    """Flower's outermost modifier: of an error only its kind leaves the node; its text may quote data.

    The text goes to the node's own log and, where the node has a home, to its status.
    """
    try:
        return step(message, context)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also of a library that gives up in its own way
        _log.exception("%s: a step failed", message.metadata.message_type)
        kind = type(error).__name__
        with contextlib.suppress(Exception):  # what cannot be noted is in the log
            home = _home(cast(NodeSettings, context.node_config), context.run_config)
            note_error(home, f"{message.metadata.message_type}: {kind}: {explain(error)}")
    raise RuntimeError(f"a step failed with {kind}; the node's own log says why")  # outside, so that it has no cause


class Node:
    """One client at its node, for the time of one message."""

    def __init__(self, config: Config, context: Context) -> None:
        settings, clients = cast(NodeSettings, context.node_config), config.federation.clients
        self.client = client_of(settings)
        if self.client >= clients:
            raise ConfigError(f"client is {self.client}; it must be below federation.clients = {clients}")
        self._secrets = secrets_from_environment()
        self._memory = _Memory(context)
        self._config, self._app = config, config.name
        self._home = self._keys = self._policy = None
        if config.privacy is not None:
            self._home = _home(settings, context.run_config)
            require_own(self._home)
            self._keys = OwnKeys(
                read_identity(self._home, self.client), verify_keys_of(read_enrolment(self._home / LIST_FILE))
            )
            self._policy = read_policy(self._home)
        else:
            _require_no_policy(settings)
        self._trainer = _LateTrainer(config, settings, self._memory, self._home)

    @cached_property
    def _scheme(self) -> Scheme:
        shape, features = self._trainer.model
        return self._config.scheme(shape, features=features)

    def greet(self, context: Context) -> Greeting:
        """Greet the server: say which client this is, and what it has agreed to.

        Terms that the client's policy forbids are refused here, before any round.
        """
        identity = self._keys.identity(self.client) if self._keys else None
        _log.info("the model's inputs are %s", self._scheme.features or "the data as they are")
        if self._policy is not None:
            for number, phase in self._scheme.phases.items():
                self._policy.check(phase.terms(self._trainer.num_coordinates, number))
        return Greeting(
            client=self.client,
            terms=settings_digest(self._scheme, self._trainer.num_coordinates),
            replays=not self._secrets.claims_privacy,
            signature=sign_introduction(identity, context.run_id, context.node_id, self.client),
        )

    def answer(self, message: Message) -> RecordDict:
        """Handle one request, and remember what the next one needs."""
        size = self._trainer.num_coordinates
        request = read_request(message.content, size)
        with _ledger(self._home) as ledger:
            client = Client(
                scheme=self._scheme,
                trainer=self._trainer,
                respondent=self._trainer,
                secrets=self._secrets,
                keys=self._keys,
                policy=self._policy,
                ledger=ledger,
                app=self._app,
                excused=Exception,
            )
            after, reply = client.handle(self._memory.recall(self.client), request)
        self._memory.keep(after)
        self._note(request, client.attendance)
        return write_reply(reply, self._scheme.at(request.round).wire(size, request.round))

    def _note(self, request: Request, attendance: Attendance) -> None:
        """Write what kept this client from contributing to the node's own log and status, and nowhere else."""
        tried, excuses = attendance.take()
        for excuse in excuses:
            _log.error("round %d: this client could not contribute and sent noise only: %s", request.round, excuse)
        if attendance.limit is not None:
            _log.warning(
                "round %d: this client is at its limit and sent noise only: %s", request.round, attendance.limit
            )
        if (tried or attendance.limit) and self._home is not None:
            try:
                note_training(self._home, request.round, excuses[-1] if excuses else attendance.limit)
            except Exception:  # without it the reply must leave all the same: a node that trained must not be missed
                _log.exception("the status of this node cannot be written")


def settings_digest(scheme: Scheme, num_coordinates: int) -> bytes:
    """The digest that server and clients compare before they start."""
    if scheme.private:
        digests = [phase.terms(num_coordinates, number).digest() for number, phase in scheme.phases.items()]
        return digests[0] if len(digests) == 1 else hashlib.sha256(b"".join(digests)).digest()
    return f"{scheme.name} {scheme.codec} {scheme.seed} {num_coordinates} {scheme.features}".encode()


class _Memory:
    """The state of a client between messages, kept in Flower's context: flat, typed, no pickle."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def recall(self, client: ClientId) -> ClientState:
        record = self._record()
        if "round" not in record:
            return ClientState(client)
        member = cast(bytes, record["member"])
        return ClientState(
            client,
            answered=(cast(int, record["round"]), cast(int, record["attempt"])),
            contributions=cast(int, record["contributions"]),
            member=decode(MemberState, member) if member else None,
        )

    def keep(self, state: ClientState) -> None:
        self._record().update(
            round=state.answered[0],
            attempt=state.answered[1],
            contributions=state.contributions,
            member=b"" if state.member is None else encode(MemberState, state.member),
        )

    @property
    def model(self) -> AppModel | None:
        record = dict(self._record())
        return from_record(record) if is_record(record) else None

    @model.setter
    def model(self, model: AppModel) -> None:
        self._record().update(to_record(model))

    def _record(self) -> ConfigRecord:
        return cast(ConfigRecord, self._context.state.setdefault(_STATE, ConfigRecord()))


class _LateTrainer:
    """Trains, and answers questions, by what is made when it does; what other steps need of its model is remembered."""

    def __init__(self, config: Config, node: NodeSettings, memory: _Memory, home: Path | None) -> None:
        self._config, self._node, self._memory, self._home = config, node, memory, home
        self.num_clients = config.federation.clients

    @cached_property
    def model(self) -> AppModel:
        model = self._memory.model
        if model is None:
            model = self._memory.model = model_of_app(self._config, self._home)
        return model

    @property
    def num_coordinates(self) -> int:
        return self.model.shape.size

    def limit_threads(self, threads: int) -> None:
        del threads

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate:
        with _excusing():
            return self._made(weights, client).train(weights, client, rng)

    def train_persons(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> Iterator[FloatArray]:
        with _excusing():
            yield from cast(PersonTrainer, self._made(weights, client)).train_persons(weights, client, rng)

    def answers(self, question: Question, weights: FloatArray, client: ClientId) -> Iterator[NDArray[np.float64]]:
        from lowkey.experiments import respondent_of

        task, study = self._config.find_task(), self._config.study
        with _excusing():
            module = held_out = tables = None
            if question.asks_of == "scores":
                module, held_out = task.model(study), self._single(client, task.held_out_at(study, self._node))
            else:
                tables = self._single(client, task.table_at(study, self._node))
            yield from respondent_of(self._config, module, held_out, tables).answers(question, weights, client)

    def _single(self, client: ClientId, examples: Any) -> _Single:
        return _Single(client, examples, self.num_clients)

    def _made(self, weights: FloatArray, client: ClientId) -> Trainer:
        from lowkey.experiments import trainer_of

        task, study = self._config.find_task(), self._config.study
        datasets = self._single(client, task.data_at(study, self._node))
        trainer: Trainer = trainer_of(self._config, task.model(study), datasets)
        if trainer.num_coordinates != weights.size:
            raise InvalidInput(f"the model has {trainer.num_coordinates} parameters; the server sent {weights.size}")
        return trainer


@contextmanager
def _excusing() -> Iterator[None]:
    """Excuse a client whose library gives up in its own way, or whose loader ends Python."""
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise CannotContribute(f"{type(error).__name__}: {explain(error)}") from error


@dataclass(frozen=True)
class _Single:
    """The datasets of all clients, of which only one is at this node."""

    client: ClientId
    examples: Any
    clients: int

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: int, /) -> Any:
        if client != self.client:
            raise InvalidInput(f"the data of client {client} is not at this node")
        return self.examples


def _home(settings: NodeSettings, run: Mapping[str, Any]) -> Path:
    home = settings.get("home")
    if home is None and "partition-id" in settings and run.get("homes"):  # Flower's simulation: all on one machine
        home = str(Path(str(run["homes"])) / f"{client_of(settings):04d}")
    if not isinstance(home, str) or not Path(home).is_dir():
        raise ConfigError(
            "a private scheme needs a directory with identity.pem and enrolled.toml at every node; start it with "
            "--node-config 'client=0 home=\"/etc/lowkey\"'"
        )
    return Path(home)


def _require_no_policy(settings: NodeSettings) -> None:
    """Refuse to run a scheme without privacy at a node that has a policy."""
    home = settings.get("home")
    if home is not None and (Path(str(home)) / POLICY_FILE).exists():
        raise PolicyRefused(
            "this node has a policy, which a scheme without privacy cannot keep; take the app out of approved.txt, or "
            f"run it at a node whose home has no {POLICY_FILE}"
        )


@contextmanager
def _ledger(home: Path | None) -> Iterator[ClientLedger | None]:
    if home is None:
        yield None
        return
    with ClientLedger(home / LEDGER_FILE) as ledger:
        yield ledger
