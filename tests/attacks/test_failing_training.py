"""A server that learns something about a hospital's data from who drops out.

Training can fail because of the data: batch normalisation refuses a batch of one example, a library runs out of memory
or gives up on a strange file. A node that then stays away tells the server that its data is strange. Some failures got
through: those that Python does not count as errors, as when the library that reads tables gives up, and those whose own
text could not be written to the node's status. The same held for a model that is made after a look at the data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from flwr.app import Message
from polars.exceptions import PanicException
from torch import nn

from lowkey.deployment import read_status
from lowkey.errors import ClientFailed
from lowkey.experiments import RunDirectory
from lowkey.simulation import run
from tests.attacks.asking_nodes import SMALL
from tests.flower.loopback import PRIVATE, Setting, reason_of

DEFENDS = (
    "At a node of a private scheme everything that fails while it reads its data, makes its model or trains becomes "
    "zeros with noise, sent like any other answer; in a simulation it stops the run."
)
NODES, BROKEN = 4, 2


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def one_example(*_args: object) -> Any:
    return [(np.zeros((1, 1, 28, 28), np.float32), np.zeros(1, np.int64))] * NODES


def raising(error: BaseException) -> Callable[..., Any]:
    def load(*_args: object) -> NoReturn:
        raise error

    return load


def endless(*args: object) -> Any:
    return endless(*args)


FAILURES = {
    "out of memory": raising(MemoryError()),
    "recursion": endless,
    "the table reader gives up": raising(PanicException("row of Maria Silva")),
    "the loader ends the program": raising(SystemExit("row of Maria Silva")),
    "a text that is no text": raising(ValueError("Maria \udce9")),
    "an error without a text": raising(Silent()),
    "a long text": raising(ValueError("x" * 10**7)),
}


def batch_normalised(_study: object) -> nn.Module:
    """A network with batch normalisation, which cannot train on one example."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 10)
    )


def survivors(setting: Setting, monkeypatch: pytest.MonkeyPatch, load: Callable[..., Any]) -> int:
    """One round, in which the data of one node cannot be loaded, or not be learned from."""

    def one_is_broken(client: int, _message: Message, handle: Callable[[], Message]) -> list[Message]:
        with monkeypatch.context() as patch:
            if client == BROKEN:
                patch.setattr("lowkey.tasks.fashion_mnist.parts.clients", load)
            return [handle()]

    setting.grid.fault = one_is_broken
    setting.serve()
    return int(RunDirectory.open(setting.out).metrics()[0]["survivors"])


@pytest.mark.parametrize("failure", FAILURES)
def test_who_cannot_train_is_there_like_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=NODES)
    assert survivors(setting, monkeypatch, FAILURES[failure]) == NODES
    status = read_status(setting.home / f"nodes/{BROKEN:04d}")
    assert not status["contributed"]
    assert status["reason"]
    assert (setting.home / f"nodes/{BROKEN:04d}/status.json").stat().st_size < 10_000


@pytest.mark.parametrize("failure", ["the table reader gives up", "the loader ends the program"])
def test_a_node_that_was_restarted_and_cannot_make_its_model_is_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=NODES)

    def broken_after_the_greeting(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        request = message.content.config_records.get("request")
        if client != BROKEN or request is None:
            return [handle()]
        if request["kind"] == "Invite":
            setting.grid.lose_state(BROKEN)
        with monkeypatch.context() as patch:
            patch.setattr("lowkey.tasks.fashion_mnist.parts.model", FAILURES[failure])
            try:
                return [handle()]
            except (PanicException, SystemExit):  # the process of the node has ended
                return []

    setting.grid.fault = broken_after_the_greeting
    setting.serve()
    assert RunDirectory.open(setting.out).metrics()[0]["survivors"] == NODES
    assert "Maria Silva" in read_status(setting.home / f"nodes/{BROKEN:04d}")["reason"]


@pytest.mark.parametrize("failure", ["the table reader gives up", "the loader ends the program"])
def test_of_a_first_greeting_that_fails_the_kind_leaves_and_the_text_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=NODES)
    heard: list[str] = []

    def broken_from_the_start(client: int, _message: Message, handle: Callable[[], Message]) -> list[Message]:
        with monkeypatch.context() as patch:
            if client == BROKEN:
                patch.setattr("lowkey.tasks.fashion_mnist.parts.model", FAILURES[failure])
            try:
                replies = [handle()]
            except (PanicException, SystemExit) as error:
                pytest.fail(f"the process of the node has ended with {type(error).__name__}")
        heard.extend(reason_of(reply) for reply in replies if reply.has_error())
        return replies

    setting.grid.fault = broken_from_the_start
    setting.serve()
    assert heard
    assert all("a step failed with" in reason and "Maria" not in reason for reason in heard)
    assert "Maria Silva" in read_status(setting.home / f"nodes/{BROKEN:04d}")["error"]


def test_batch_normalisation_with_one_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowkey.tasks.fashion_mnist.parts.model", batch_normalised)
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], "codec.chunks=3"], nodes=NODES)
    assert survivors(setting, monkeypatch, one_example) == NODES
    assert "more than 1 value per channel" in read_status(setting.home / f"nodes/{BROKEN:04d}")["reason"]


def test_in_a_simulation_it_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowkey.tasks.fashion_mnist.parts.model", batch_normalised)
    monkeypatch.setattr("lowkey.tasks.fashion_mnist.parts.clients", one_example)
    config = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], "codec.chunks=3", "runtime.workers=0"], nodes=NODES).config
    with pytest.raises(ClientFailed, match="more than 1 value per channel"):
        run(config, tmp_path / "simulated")


def test_a_node_whose_status_cannot_be_written_is_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=NODES)
    (setting.home / f"nodes/{BROKEN:04d}/status.json").mkdir()
    assert survivors(setting, monkeypatch, raising(ValueError("no data"))) == NODES
    assert os.listdir(setting.home / f"nodes/{BROKEN:04d}/status.json") == []
