"""One hostile node answers a request for its vector with something that is no vector.

The attacker is a registered node of an enrolled client, so that Flower lets its replies through and the server reads
them. It wants to end the run for everybody, or to make the server allocate more memory than it has. It tries whatever
Flower can carry: a NumPy header that promises 8 exabytes, one that NumPy's tokenizer chokes on, a zip file in place of
an array, records of another kind, and no record at all.

Until now vectors were read by ``np.load``, and only a few kinds of errors were taken for a dropout. Most of these forms
ended the run with an error of NumPy or Python, and the members that were honest lost their round.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord

from lowkey.experiments import RunDirectory
from lowkey.flower.node import REPLAY_VARIABLE
from tests.flower.loopback import OPEN, PRIVATE, Setting, reply_with

DEFENDS = "Whatever a node answers, it can only drop out: a reply that cannot be read is a dropout of its sender alone."

HOSTILE = 2
Form = Callable[[Array], Any]
"""Makes what the hostile node sends in place of its record of arrays; it is given the true vector."""


@dataclass
class Counterfeit:
    """An array as Flower would describe the true one, with other bytes."""

    data: bytes

    def __call__(self, true: Array) -> ArrayRecord:
        return ArrayRecord({"vector": Array(dtype=true.dtype, shape=true.shape, stype="numpy.ndarray", data=self.data)})


def npy(header: str) -> bytes:
    """A file of NumPy with this header, padded as NumPy does, and some bytes."""
    text = header.encode("latin1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 64


def header_of(shape: str) -> bytes:
    return npy("{'descr': '|u1', 'fortran_order': False, 'shape': (" + shape + ",), }")


def archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, vector=np.zeros(9, np.uint8))
    return file.getvalue()


def inner(true: Array, **changes: Any) -> ArrayRecord:
    """The true array with some of its fields set to what Flower's constructor would refuse, and its store does not."""
    forged = Array(dtype=true.dtype, shape=true.shape, stype=true.stype, data=true.data)
    forged.__dict__.update(changes)
    return ArrayRecord({"vector": forged})


FORMS: dict[str, Form] = {
    "a zip archive of arrays": Counterfeit(archive()),
    "a header of 2^60 numbers": Counterfeit(header_of("1152921504606846976")),
    "a header of 2^70 numbers": Counterfeit(header_of("1180591620717411303424")),
    "a header that ends within a bracket": Counterfeit(npy("{'descr': '|u1', 'shape': (((((9,")),
    "a header of nested brackets": Counterfeit(npy("(" * 9000)),
    "a pickle": Counterfeit(b"\x80\x04cposix\nsystem\n."),
    "no bytes": Counterfeit(b""),
    "100 megabytes": Counterfeit(b"\0" * 100_000_000),
    "a shape of huge numbers": lambda true: inner(true, shape=(2**200,)),
    "a type of a megabyte": lambda true: inner(true, dtype="u" * 1_000_000),
    "another serialisation": lambda true: inner(true, stype="torch"),
    "an array under another name": lambda true: ArrayRecord({"other": true}),
    "no array at all": lambda _true: ArrayRecord({}),
    "a table instead of arrays": lambda _true: ConfigRecord({"vector": 1}),
    "metrics instead of arrays": lambda _true: MetricRecord({"vector": [1.0, float("nan")]}),
}


@pytest.fixture(autouse=True)
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPLAY_VARIABLE, "7")


def attack(setting: Setting, form: Form) -> None:
    """Let the hostile node contribute as it should, and then exchange its vector."""

    def exchanged(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        if client != HOSTILE or reply.has_error() or "vector" not in reply.content:
            return [reply]
        content = reply.content
        true = content.array_records["vector"]["vector"]
        del content["vector"]
        content["vector"] = form(true)
        return [reply_with(message, content)]

    setting.grid.fault = exchanged


def end_of(setting: Setting) -> str:
    """How a run ended: completed, or the kind of error that stopped it."""
    try:
        setting.serve()
    except Exception as error:
        return type(error).__name__
    return "completed"


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("scheme", [OPEN, PRIVATE], ids=["open", "private"])
def test_a_malformed_vector_is_a_dropout_of_its_sender(
    tmp_path: Path, scheme: tuple[str, list[str]], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(tmp_path, *scheme)
    attack(setting, FORMS[name])
    assert end_of(setting) == "completed"
    [line] = RunDirectory.open(setting.out).metrics()
    assert line["survivors"] == 3
    told = [record.getMessage() for record in caplog.records if "is not used" in record.getMessage()]
    assert len(told) == 1
    assert len(told[0]) < 500
