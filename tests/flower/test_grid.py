"""The whole app, server and nodes, with every kind of fault a message can have."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from lowkey.deployment import read_status
from lowkey.errors import ConfigError, LowkeyError, RoundFailed
from lowkey.experiments import RunDirectory, load_config
from lowkey.experiments.checkpoints import unpack
from lowkey.flower.node import REPLAY_VARIABLE, read_app_config
from lowkey.flower.wire import VERSION
from lowkey.privacy import ClientLedger, Ledger, server_epsilon
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run
from tests.flower.loopback import OPEN, PRIVATE, Fault, Setting, error_reply, reason_of, reply_with

STEPS = ["Invite", "Adverts", "Delivery", "Survivors", "Confirmations"]


def step_of(message: Message) -> str:
    request = message.content.config_records.get("request")
    return "hello" if request is None else str(request.get("kind", "open"))


def metrics(setting: Setting) -> list[dict[str, Any]]:
    return RunDirectory.open(setting.out).metrics()


def weights(out: Path) -> np.ndarray:
    return unpack(sorted(out.glob("checkpoint-*"))[-1]).state.weights


@pytest.fixture(autouse=True)
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPLAY_VARIABLE, "7")


@pytest.mark.parametrize("scheme", [OPEN, PRIVATE], ids=["open", "private"])
def test_same_model_as_in_a_simulation(tmp_path: Path, scheme: tuple[str, list[str]]) -> None:
    setting = Setting(tmp_path, *scheme, rounds=2)
    setting.serve()
    simulated = replace(setting.config, runtime=replace(setting.config.runtime, workers=0))
    run(simulated, tmp_path / "simulated", secrets=ReplaySecrets(7))
    np.testing.assert_array_equal(weights(setting.out), weights(tmp_path / "simulated"))


def lost_before(_client: int, _message: Message, _handle: Callable[[], Message]) -> list[Message]:
    return []


def lost_after(_client: int, _message: Message, handle: Callable[[], Message]) -> list[Message]:
    handle()
    return []


def gone(_client: int, message: Message, _handle: Callable[[], Message]) -> list[Message]:
    return [error_reply(message, "node is unavailable")]


def garbage(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
    handle()
    return [reply_with(message, RecordDict({"reply": ConfigRecord({"version": VERSION, "round": "one"})}))]


def noise_bytes(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
    handle()
    fields = ConfigRecord({"version": VERSION, "round": 1, "attempt": 0, "kind": "Advert"})
    fields["message"] = b"\x00\xff" * 50
    return [reply_with(message, RecordDict({"reply": fields}))]


def another_round(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
    reply = handle()
    reply.content.config_records["reply"]["round"] = 9
    return [reply]


def short_vector(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
    reply = handle()
    reply.content["vector"] = ArrayRecord({"vector": Array(np.zeros(5, np.uint8))})
    return [reply]


def lying_vector(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
    reply = handle()
    if "vector" in reply.content:
        true = reply.content.array_records["vector"]["vector"]
        false = Array(dtype=true.dtype, shape=true.shape, stype=true.stype, data=true.data[:-100])
        reply.content["vector"] = ArrayRecord({"vector": false})
    else:
        reply.content["reply"] = ConfigRecord({})
    return [reply]


FAULTS = [lost_before, lost_after, gone, garbage, noise_bytes, another_round, short_vector, lying_vector]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_of_one_node_is_a_dropout_and_the_round_completes(tmp_path: Path, step: str, fault: Fault) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    setting.grid.fault = lambda client, message, handle: (
        fault(client, message, handle) if (client, step_of(message)) == (2, step) else [handle()]
    )
    setting.serve()
    [line] = metrics(setting)
    assert line["survivors"] == (4 if step in ("Survivors", "Confirmations") else 3)
    assert [entry.state for entry in Ledger.read(setting.out / "ledger.jsonl").entries] == ["RELEASED"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_open_rounds_go_on_without_a_faulty_node(tmp_path: Path, fault: Fault) -> None:
    setting = Setting(tmp_path, *OPEN)
    setting.grid.fault = lambda client, message, handle: (
        fault(client, message, handle) if (client, step_of(message)) == (2, "open") else [handle()]
    )
    setting.serve()
    assert metrics(setting)[0]["survivors"] == 3


def test_open_rounds_fail_closed_below_their_declared_minimum(tmp_path: Path) -> None:
    setting = Setting(tmp_path, OPEN[0], ["federation.min_clients=4"])
    setting.grid.fault = lambda client, _message, handle: [] if client == 2 else [handle()]
    with pytest.raises(RoundFailed, match="3 of 4 clients are online; at least 4 are needed"):
        setting.serve()
    setting.grid.fault = lambda client, message, handle: [] if (client, step_of(message)) == (2, "open") else [handle()]
    with pytest.raises(RoundFailed, match="3 of 4 members answered, and at least 4 must"):
        setting.serve()
    setting.grid.fault = lambda _client, _message, handle: [handle()]
    setting.serve()
    assert metrics(setting)[0]["survivors"] == 4


@pytest.mark.parametrize("scheme", [OPEN, PRIVATE], ids=["open", "private"])
def test_second_answers_are_ignored(tmp_path: Path, scheme: tuple[str, list[str]]) -> None:
    once, twice = Setting(tmp_path / "once", *scheme), Setting(tmp_path / "twice", *scheme)

    def answers_twice(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        return [reply, reply] if client == 1 else [reply]

    twice.grid.fault = answers_twice
    once.serve()
    twice.serve()
    np.testing.assert_array_equal(weights(once.out), weights(twice.out))


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_node_that_returns_without_its_state_drops_out_and_is_there_in_the_next_round(
    tmp_path: Path, step: str
) -> None:
    setting = Setting(tmp_path, *PRIVATE, rounds=2)
    restarted: list[str] = []

    def restart(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        if (client, step_of(message)) == (0, step) and not restarted:
            restarted.append(step)
            setting.grid.lose_state(0)
        return [handle()]

    setting.grid.fault = restart
    setting.serve()
    first, second = metrics(setting)
    assert first["survivors"] == (4 if step in ("Survivors", "Confirmations") else 3)
    assert second["survivors"] == 4
    # the ledger on its disk outlives the restart: every contribution is counted, whether or not it arrived
    joined = ClientLedger.read(setting.home / "nodes/0000/ledger.jsonl").entries
    assert len(joined) == (1 if step in ("Adverts", "Delivery") else 2)


@pytest.mark.parametrize("step", STEPS)
def test_too_few_survivors_fail_closed_and_are_tried_again(tmp_path: Path, step: str) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    failing = {"left": 2}

    def first_attempt_fails(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        if client in (0, 1) and step_of(message) == step and failing["left"]:
            failing["left"] -= 1
            return []
        return [handle()]

    setting.grid.fault = first_attempt_fails
    setting.serve()
    states = [entry.state for entry in Ledger.read(setting.out / "ledger.jsonl").entries]
    # an attempt is paid for once its vectors were asked for, with the Delivery
    assert states == (["RELEASED"] if step in ("Invite", "Adverts") else ["ABORTED", "RELEASED"])
    assert metrics(setting)[0]["survivors"] == 4


def test_when_nodes_stay_away_the_run_stops_with_a_clear_message_and_goes_on_later(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    setting.grid.offline = {0, 1}
    with pytest.raises(RoundFailed, match="2 of 4 clients are online; at least 3 are needed"):
        setting.serve()
    assert Ledger.read(setting.out / "ledger.jsonl").entries == ()
    setting.grid.offline = set()
    setting.serve()
    assert metrics(setting)[0]["survivors"] == 4


@pytest.mark.parametrize("step", STEPS)
def test_a_server_killed_in_any_step_resumes_with_a_new_attempt_and_never_spends_too_little(
    tmp_path: Path, step: str
) -> None:
    setting = Setting(tmp_path, *PRIVATE, rounds=2)

    class Killed(BaseException):
        pass

    def kill(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        request = message.content.config_records.get("request")
        if request is not None and (request["round"], step_of(message), client) == (2, step, 3):
            raise Killed
        return [handle()]

    setting.grid.fault = kill
    with pytest.raises(Killed):
        setting.serve()
    setting.grid.fault = lambda _client, _message, handle: [handle()]
    setting.serve()
    entries = Ledger.read(setting.out / "ledger.jsonl").entries
    spent = [(e.round, e.attempt) for e in entries]
    # what died after vectors were asked for counts; an earlier death costs nothing
    assert spent == ([(1, 0), (2, 1)] if step in ("Invite", "Adverts") else [(1, 0), (2, 0), (2, 1)])
    assert [line["round"] for line in metrics(setting)] == [1, 2]


def test_a_private_run_cannot_be_continued_under_another_name(tmp_path: Path) -> None:
    """Clients count by the name of the app; under another one they would refuse, and count anew."""
    setting = Setting(tmp_path, *PRIVATE)
    setting.serve()
    setting.config = replace(setting.config, name="another", schedule=replace(setting.config.schedule, rounds=2))
    with pytest.raises(ConfigError, match=r"was started by the app 'demo/fl-cs-dp', and this one is called 'another'"):
        setting.serve()


def test_known_nodes_are_not_bothered(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "demo/fl-std", ["federation.cohort=2"], nodes=6, rounds=2)
    setting.serve()
    greeted = [client for client, kind in setting.grid.asked if kind == "query.hello"]
    worked = [client for client, kind in setting.grid.asked if kind != "query.hello"]
    assert sorted(greeted) == list(range(6))
    assert len(worked) == 4


def test_nodes_mask_their_sums_whatever_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "lowkey.toml").write_text(load_config("demo/fl-cs-dp", ["privacy.aggregation=plain"]).to_toml())
    privacy = read_app_config(tmp_path / "lowkey.toml").privacy
    assert privacy is not None
    assert privacy.aggregation == "masked"


def test_secrets_are_wiped_after_use_and_bound_to_one_attempt(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    seen: list[bytes] = []

    def look(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        record = setting.grid.contexts[1000 + client].state.config_records["lowkey"]
        member = record.get("member", b"")
        assert isinstance(member, bytes)
        seen.append(member)
        return [reply]

    setting.grid.fault = look
    setting.serve()
    assert any(seen)
    for context in setting.grid.contexts.values():
        assert context.state.config_records["lowkey"]["member"] == b""


def test_a_replayed_request_meets_a_refusal(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    refusals: list[str] = []

    def replay(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        if client == 0 and step_of(message) in ("Adverts", "Delivery", "Survivors", "Confirmations"):
            again = handle()
            refusals.append(reason_of(again) if again.has_error() else "answered again")
        return [reply]

    setting.grid.fault = replay
    setting.serve()
    assert len(refusals) == 4
    assert not any(reason == "answered again" for reason in refusals)


def test_a_contribution_is_not_given_twice_even_when_the_state_is_rolled_back(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    refusals: list[str] = []

    def roll_back(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        if (client, step_of(message)) != (0, "Delivery"):
            return [handle()]
        record = setting.grid.contexts[1000].state.config_records["lowkey"]
        before = dict(record)
        reply = handle()
        record.update(before)  # the reply left, and the node died before it stored its state
        refusals.extend([reason_of(handle()), read_status(setting.home / "nodes/0000")["error"]])
        return [reply]

    setting.grid.fault = roll_back
    setting.serve()
    heard, noted = refusals
    assert heard == "a step failed with LedgerError; the node's own log says why"
    assert "was joined before" in noted


def test_limits_of_contributions_hold_across_restarts_of_a_node(tmp_path: Path) -> None:
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], "privacy.max_contributions=1"], rounds=3)

    def restart(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        if step_of(message) == "Invite":
            setting.grid.lose_state(client)
        return [handle()]

    setting.grid.fault = restart
    setting.serve()
    entries = ClientLedger.read(setting.home / "nodes/0001/ledger.jsonl").entries
    assert [entry.contributes for entry in entries] == [True, False, False]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("settings", "has agreed to other settings"),
        ("identity", "its signature is not that of client 1"),
        ("replay", "replays its secrets"),
        ("number", "a step failed with ConfigError"),
        ("policy", "a step failed with PolicyRefused"),
    ],
)
def test_nodes_that_do_not_belong_are_not_admitted(
    tmp_path: Path, change: str, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, other = Setting(tmp_path / "a", *PRIVATE), Setting(tmp_path / "b", *PRIVATE)
    if change == "settings":
        toml = setting.home / "app/preset/lowkey.toml"
        own = other.home / "app/preset/lowkey.toml"
        own.write_text(toml.read_text().replace("clip_norm = 0.2", "clip_norm = 0.3"))
        app, changed = setting.grid.app, other.grid.app

        def apart(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
            setting.grid.app = changed if client == 1 else app
            return [handle()]

        setting.grid.fault = apart
    elif change == "identity":
        shutil.copytree(other.home / "nodes/0001", setting.home / "nodes/0001", dirs_exist_ok=True)
    elif change == "number":
        setting.grid.contexts[1001].node_config = {"client": 77, "home": str(setting.home / "nodes/0001")}
    elif change == "policy":
        policy = setting.home / "nodes/0001/policy.toml"
        policy.write_text(policy.read_text().replace("min_roster = 4", "min_roster = 5"))
    elif change == "replay":

        def honest(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
            with monkeypatch.context() as patch:
                if client == 1:
                    patch.delenv(REPLAY_VARIABLE)
                return [handle()]

        setting.grid.fault = honest
    with caplog.at_level(logging.WARNING):
        setting.serve()
    assert metrics(setting)[0]["survivors"] == 3
    assert reason in caplog.text


@pytest.mark.parametrize(("version", "older"), [(VERSION - 1, "node"), (VERSION + 1, "server")])
def test_a_node_of_another_version_is_not_admitted_and_the_log_says_which_side_to_upgrade(
    tmp_path: Path, version: int, older: str, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(tmp_path, *PRIVATE)

    def another(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        if (client, step_of(message)) == (1, "hello"):
            reply.content.config_records["greeting"]["version"] = version
        return [reply]

    setting.grid.fault = another
    setting.serve()
    assert metrics(setting)[0]["survivors"] == 3
    assert f"the node speaks version {version} of the wire format and this server version {VERSION}" in caplog.text
    assert f"upgrade Lowkey at the {older}" in caplog.text


def test_a_node_greets_a_server_of_another_version_and_says_so_in_its_own_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    greetings: list[RecordDict] = []

    def older(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        if step_of(message) == "hello":
            message.content.config_records["hello"]["version"] = VERSION - 1
            reply = handle()
            greetings.append(reply.content)
            return [reply]
        return [handle()]

    setting.grid.fault = older
    setting.serve()
    assert "this server is not for this node: the server speaks version" in caplog.text
    assert "upgrade Lowkey at the server" in caplog.text
    assert all(content.config_records["greeting"]["version"] == VERSION for content in greetings)


def test_a_run_that_goes_on_greets_its_nodes_anew(tmp_path: Path) -> None:
    """Release, keys or settings of a node may have changed since."""
    setting = Setting(tmp_path, *OPEN)
    setting.serve()
    setting.config = replace(setting.config, schedule=replace(setting.config.schedule, rounds=2))
    greeted = [client for client, kind in setting.grid.asked if kind == "query.hello"]
    setting.serve()
    again = [client for client, kind in setting.grid.asked if kind == "query.hello"]
    assert sorted(again) == sorted(greeted * 2)
    assert [line["survivors"] for line in metrics(setting)] == [4, 4]


def test_a_run_with_replayed_secrets_claims_nothing(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    setting.serve()
    assert metrics(setting)[0]["epsilon_pld"] is None
    assert json.loads((setting.out / "environment.json").read_text())["claims_privacy"] is False


def test_a_real_run_claims_its_epsilon_and_logs_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REPLAY_VARIABLE)
    setting = Setting(tmp_path, *PRIVATE)
    with caplog.at_level(logging.DEBUG):
        setting.serve()
    assert metrics(setting)[0]["epsilon_pld"] == pytest.approx(server_epsilon(1.0, 1, 1e-5), abs=1e-4)
    assert "round 1: accuracy" in caplog.text
    assert "ε" in caplog.text
    for node in (setting.home / "nodes").iterdir():
        body = (node / "identity.pem").read_text().splitlines()[1]
        assert body not in caplog.text


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("home", "identity.pem and enrolled.toml"),
        ("identity.pem", "flower identity"),
        ("policy.toml", "flower approve"),
    ],
)
def test_a_node_says_what_is_missing_in_its_own_log(
    tmp_path: Path, missing: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    if missing == "home":
        setting.grid.contexts[1000].node_config = {"client": 0}
    else:
        (setting.home / "nodes/0000" / missing).unlink()
    failures: list[str] = []

    def listen(client: int, _message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        if client == 0:
            failures.append(reason_of(reply))
        return [reply]

    setting.grid.fault = listen
    setting.serve()
    assert failures[0] == "a step failed with ConfigError; the node's own log says why"
    assert said in caplog.text
    if missing != "home":
        assert said in read_status(setting.home / "nodes/0000")["error"]


def broken_data(*_args: object) -> None:
    raise KeyError("patient 4711 has no age")


def test_errors_of_the_data_stay_at_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a scheme without privacy the node drops out; the server hears that, and not why."""
    setting = Setting(tmp_path, *OPEN)
    monkeypatch.setattr("lowkey.tasks.fashion_mnist.parts.clients", broken_data)
    failures: list[str] = []

    def listen(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        if step_of(message) == "open":
            failures.append(reason_of(reply))
        return [reply]

    setting.grid.fault = listen
    with pytest.raises(LowkeyError, match="0 of 4 members answered"):
        setting.serve()
    assert failures
    assert set(failures) == {"a step failed with CannotContribute; the node's own log says why"}


def test_a_private_node_that_cannot_train_answers_with_noise_and_tells_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(tmp_path, *PRIVATE)
    failures: list[str] = []

    def one_is_broken(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        with monkeypatch.context() as patch:
            if client == 2:
                patch.setattr("lowkey.tasks.fashion_mnist.parts.clients", broken_data)
            reply = handle()
        failures.extend([reason_of(reply)] if reply.has_error() else [])
        return [reply]

    setting.grid.fault = one_is_broken
    setting.serve()
    [metrics] = RunDirectory.open(setting.out).metrics()
    assert metrics["survivors"] == 4
    assert not failures
    assert "could_not_contribute" not in metrics
    assert "4711" in caplog.text  # all nodes of this test log in one process
    homes = [setting.home / "nodes" / f"{client:04d}" for client in range(4)]
    assert [read_status(home)["contributed"] for home in homes] == [True, True, False, True]
    assert "patient 4711" in read_status(homes[2])["reason"]
    published = [file.read_text(errors="replace") for file in setting.out.rglob("*") if file.is_file()]
    assert all("4711" not in text for text in published)
