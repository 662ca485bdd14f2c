"""A server that asks nodes for whatever it likes, step by step; the nodes are real apps with real contexts."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from lowkey.deployment import read_enrolment, verify_keys_of
from lowkey.federation import Adverts, Confirmations, Invite, Reply, Request, Survivors
from lowkey.flower.node import read_app_config
from lowkey.flower.wire import read_reply, write_model, write_request
from lowkey.secagg import Advert, Confirmation, Links, Masked, Revealed, SealedShares, accept_adverts, deliver
from lowkey.types import FloatArray, Words
from tests.flower.loopback import Setting

SMALL = ("model.filters=[2, 4]", "model.hidden=8", "codec.chunks=3")
"""Settings of a model that trains in milliseconds."""


class Refused(Exception):
    """A node answered with an error; the text is what reached the server."""


class LyingServer:
    """Speaks to the nodes of a setting. It knows the app and the enrolment, as any server does."""

    def __init__(self, setting: Setting) -> None:
        self.grid, self.home = setting.grid, setting.home
        config = read_app_config(self.home / "app/preset/lowkey.toml")
        self.name, self.scheme = config.name, config.scheme()
        self.weights: FloatArray = _first_weights(setting)
        self.roster = tuple(range(setting.nodes))
        self.verify_keys = verify_keys_of(read_enrolment(self.home / "enrolled.toml"))

    def ask(self, client: int, request: Request, *, app: ClientApp | None = None) -> Reply:
        """One message to a node; ``app`` is run there instead of the usual one."""
        model = None if request.weights is None else write_model(request.weights)
        contributes = request.message is not None and type(request.message).__name__ == "Delivery"
        kind = "train.contribute" if contributes else "query.agree"
        message = Message(write_request(request, model), 1000 + client, kind)
        message.metadata.__dict__["_message_id"] = "1"
        try:
            reply = (app or self.grid.app)(message, self.grid.contexts[1000 + client])
        except Exception as error:  # what Flower sends to the server in its place
            raise Refused(f"{type(error)}:<'{error}'>") from None
        return read_reply(reply.content, request, self.scheme.wire(self.weights.size))

    def advertise(self, run: str, attempt: int, *, roster: tuple[int, ...] | None = None) -> dict[int, Advert]:
        invite = Invite(run=run, roster=roster or self.roster)
        return {c: _advert(self.ask(c, _request(attempt, invite))) for c in roster or self.roster}

    def share(self, attempt: int, adverts: Mapping[int, Advert]) -> dict[int, SealedShares]:
        def shown(client: int) -> Request:
            others = tuple(advert for sender, advert in adverts.items() if sender != client)
            return _request(attempt, Adverts(advertisers=tuple(adverts), adverts=others))

        return {c: _shares(self.ask(c, shown(c))) for c in adverts}

    def collect(self, run: str, attempt: int) -> dict[int, tuple[Words, Masked]]:
        """Masked vectors of all members, with their signatures: keys, shares, then the request for data."""
        adverts = self.advertise(run, attempt)
        shares = self.share(attempt, adverts)
        return {c: self.contribute(c, run, attempt, adverts, shares) for c in self.roster}

    def contribute(
        self,
        client: int,
        run: str,
        attempt: int,
        adverts: Mapping[int, Advert],
        shares: Mapping[int, SealedShares],
        *,
        app: ClientApp | None = None,
    ) -> tuple[Words, Masked]:
        terms = self.scheme.terms(self.weights.size, 1)
        session = self.scheme.session(run, 1, attempt, self.roster, terms)
        accepted = accept_adverts(session, adverts, self.verify_keys)
        delivery = deliver(Links(session, accepted), shares, self.verify_keys)[client]
        request = Request(round=1, attempt=attempt, weights=self.weights, clip_norm=0.2, message=delivery)
        reply = self.ask(client, request, app=app)
        assert isinstance(reply.message, Masked)
        return np.asarray(reply.vector, np.uint32), reply.message

    def confirm(self, client: int, attempt: int, survivors: Iterable[int]) -> Confirmation:
        reply = self.ask(client, _request(attempt, Survivors(survivors=tuple(survivors)))).message
        assert isinstance(reply, Confirmation)
        return reply

    def reveal(self, client: int, attempt: int, confirmations: Iterable[Confirmation]) -> Revealed:
        reply = self.ask(client, _request(attempt, Confirmations(confirmations=tuple(confirmations)))).message
        assert isinstance(reply, Revealed)
        return reply

    def contexts(self) -> dict[int, RecordDict]:
        """A copy of what every node remembers."""
        return {node: copy.deepcopy(context.state) for node, context in self.grid.contexts.items()}

    def roll_back(self, remembered: Mapping[int, RecordDict]) -> None:
        """What a node has after it died between its answer and the storing of its context."""
        for node, state in remembered.items():
            self.grid.contexts[node].state = copy.deepcopy(state)

    def node(self, client: int) -> Path:
        return self.home / "nodes" / f"{client:04d}"


def _request(attempt: int, message: Invite | Adverts | Survivors | Confirmations) -> Request:
    return Request(round=1, attempt=attempt, message=message)


def _advert(reply: Reply) -> Advert:
    assert isinstance(reply.message, Advert)
    return reply.message


def _shares(reply: Reply) -> SealedShares:
    assert isinstance(reply.message, SealedShares)
    return reply.message


def _first_weights(setting: Setting) -> FloatArray:
    from lowkey.experiments import server_parts

    return server_parts(setting.config).initial_weights
