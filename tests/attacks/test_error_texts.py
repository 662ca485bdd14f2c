"""A server that reads patients' data in the error messages of a node.

A cell of a hospital's file holds a name and a birth date where an age should be. The loader refuses it, as it should,
and quotes the cell, so that the hospital can find it. The message went to the server, in the node's answer.

An app may also read the file when it is imported, before Lowkey has anything to say: Flower makes its answer from
whatever is raised there.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.fab import Fab
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime import run_clientapp as runtime

from lowkey.deployment import read_status
from lowkey.deployment.apps import app_hash, new_app
from lowkey.deployment.guard import approve, guard
from lowkey.experiments import RunDirectory
from lowkey.tasks.mortality import parts
from tests.flower.loopback import RUN, Setting, reason_of
from tests.tasks.mortality.tables import diabetes, write

DEFENDS = (
    "Of an error at a node only its kind leaves, such as DataError; the text, which may quote data, stays in the "
    "node's own log and status.json. So it is with an app that fails while it is loaded, of which the log alone "
    "tells. A node of a private scheme that can no longer read its data answers a round with "
    "zeros and noise, and does not drop out."
)
CELL = "Maria Silva 02.03.1947"
STEPS = ["hello", "Invite", "Adverts", "Delivery", "Survivors", "Confirmations", "open"]
HOSPITALS, BROKEN = 4, 2


class Hospitals:
    """Four hospitals that read one file; in chosen steps the file of one of them has the cell."""

    def __init__(self, tmp: Path, scheme: str, *changes: str) -> None:
        self.file, self.steps = tmp / "admissions.csv", list[str]()
        data = [f'data.source="{self.file}"', "data.any_version=true", "data.min_count=2", "model.hidden=4"]
        write(self.file, diabetes(120))
        self.setting = Setting(tmp, f"hospital/diabetes130/{scheme}", [*data, *changes], nodes=HOSPITALS)
        self.setting.grid.fault = self._listen
        self.heard: list[str] = []

    def _listen(self, client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        request = message.content.config_records.get("request")
        step = "hello" if request is None else str(request.get("kind", "open"))
        if client != BROKEN or step not in self.steps:
            return [handle()]
        table = diabetes(120)
        table["age"][7] = CELL
        try:
            write(self.file, table)
            parts._divided.cache_clear()  # every message is a process of its own at a real node
            self.setting.grid.lose_state(BROKEN) if step in ("hello", "Invite") else None
            reply = handle()
        finally:
            write(self.file, diabetes(120))
            parts._divided.cache_clear()
        self.heard.append(reason_of(reply) if reply.has_error() else "")
        return [reply]

    def everything_the_server_has(self) -> str:
        run = [file.read_bytes().decode(errors="replace") for file in self.setting.out.rglob("*") if file.is_file()]
        return "\n".join([*self.heard, *run])


@pytest.mark.parametrize("steps", [["hello"], ["Invite"], ["Delivery"], STEPS], ids=" ".join)
def test_a_private_scheme(tmp_path: Path, steps: list[str], caplog: pytest.LogCaptureFixture) -> None:
    private = ["privacy.dropouts=0.25", "codec.chunks=3", "codec.ratio=0.2"]
    hospitals = Hospitals(tmp_path, "fl-cs-dp-r0.05", *private)
    hospitals.steps = steps
    with caplog.at_level(logging.WARNING):
        hospitals.setting.serve()
    assert hospitals.heard
    assert "Maria" not in hospitals.everything_the_server_has()
    assert "02.03.1947" not in hospitals.everything_the_server_has()
    assert CELL in caplog.text  # the hospital's own log: all nodes of this test log in one process


@pytest.mark.parametrize("steps", [["Delivery"], STEPS[1:]], ids=" ".join)
def test_a_private_round_is_answered_all_the_same(tmp_path: Path, steps: list[str]) -> None:
    """Also by a node that was restarted before the round, and whose model is made after a look at the data."""
    hospitals = Hospitals(tmp_path, "fl-cs-dp-r0.05", "privacy.dropouts=0.25", "codec.chunks=3", "codec.ratio=0.2")
    hospitals.steps = steps
    hospitals.setting.serve()
    assert RunDirectory.open(hospitals.setting.out).metrics()[0]["survivors"] == HOSPITALS
    status = read_status(hospitals.setting.home / f"nodes/{BROKEN:04d}")
    assert CELL in status["reason"]


@pytest.mark.parametrize("steps", [["hello"], ["open"]], ids=" ".join)
def test_a_scheme_without_privacy(tmp_path: Path, steps: list[str]) -> None:
    """There the node drops out, which tells that something is wrong with its data, and no more."""
    hospitals = Hospitals(tmp_path, "fl-std")
    hospitals.steps = steps
    hospitals.setting.serve()
    assert RunDirectory.open(hospitals.setting.out).metrics()[0]["survivors"] == HOSPITALS - 1
    assert "Maria" not in hospitals.everything_the_server_has()


class Node:
    """Flower's own program for one message, with what it sends to the server: an answer, and how the task ended."""

    def __init__(self, home: Path, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replies, self.details = list[Message](), list[str]()
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, 1, 1
        message = Message(RecordDict(), 1000, "query.hello")
        message.metadata.__dict__["_message_id"] = "1"
        context = Context(run_id=RUN, node_id=1000, node_config={}, state=RecordDict(), run_config={})
        run = Run.create_empty(RUN)
        run.fab_id, run.fab_version = f"lowkey/{app.name}", "1.0.0"
        task = message, context, run, Fab("", build_fab_from_disk(app), {})
        exits: list[Callable[[], None]] = []
        without_a_network: dict[str, object] = {
            "event": lambda *_: None,
            "RuntimeHttpClient": SimpleNamespace(from_server_address=lambda **_: SimpleNamespace(close=lambda: None)),
            "HeartbeatSender": lambda _: SimpleNamespace(start=lambda: None, is_running=False),
            "register_signal_handlers": lambda *, exit_handlers, **_: exits.extend(exit_handlers),
            "pull_task_input": lambda _: task,
            "push_message": lambda _client, reply, _context: self.replies.append(reply),
            "push_task_output": lambda *, details, **_: self.details.append(details),
            "flwr_exit": lambda **_: exits.pop()(),
        }
        for name in ("install_from_fab", "get_load_client_app_fn"):  # the guard changes them; they are put back
            without_a_network[name] = getattr(runtime, name)
        for name, instead in without_a_network.items():
            monkeypatch.setattr(runtime, name, instead)
        monkeypatch.setattr(sys, "path", [*sys.path])
        approve(home / "approved.txt", app_hash(app), app.name)
        guard(runtime, home / "approved.txt", home / "fresh")
        runtime.run_clientapp("127.0.0.1:9094", "token", insecure=True)


@pytest.mark.parametrize("raised", ["ValueError", "SystemExit"])
def test_an_app_that_fails_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], raised: str
) -> None:
    app = new_app(tmp_path / f"fails-with-{raised.lower()}")
    module = next(app.glob("*/client_app.py"))
    module.write_text(f"raise {raised}('row of {CELL}')\n" + module.read_text())
    node = Node(tmp_path, app, monkeypatch)
    assert [f"the app cannot be loaded ({raised})" in reason_of(reply) for reply in node.replies] == [True]
    assert node.details == [reason_of(node.replies[0])]
    assert "Maria" not in node.details[0]
    assert CELL in capfd.readouterr().err  # the hospital's own log
