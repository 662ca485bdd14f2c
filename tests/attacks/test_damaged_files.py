"""A file that somebody else wrote, or that a disk has damaged, reaches a parser.

The attacker ships a bundle, sends an identity to enrol, or has had a file of the server or of a hospital in hands; or
there is no attacker, and one bit of a checkpoint has flipped. It wants the program to die with an error that nobody
expected, to fill the memory, or to go on with numbers that nobody computed.

Until now brackets nested deeply enough ended in ``RecursionError``, long numbers in ``OverflowError``, directories in
place of files in ``OSError``, some bundles in ``IndexError`` and others. Worst, a flipped bit in the arrays of a
checkpoint was not seen at all: the run went on from another model.
"""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lowkey.deployment import fingerprint, read_enrolment, read_identity, read_status
from lowkey.deployment.enrolment import Enrolled
from lowkey.deployment.guard import bundle_digest, require_approved
from lowkey.errors import LowkeyError
from lowkey.experiments import RunDirectory
from lowkey.experiments.checkpoints import Checkpoint, DamagedCheckpointError, pack, unpack
from lowkey.federation import RunState
from lowkey.privacy import ClientLedger, Ledger, Policy
from lowkey.simulation.memory import Memory
from tests.conftest import tiny_config

DEFENDS = (
    "A file or bundle that cannot be read is refused with an error of Lowkey, whatever is wrong with it, and in little "
    "memory; a checkpoint in which any bit has changed is refused."
)

NESTED = b"[" * 100_000
LONG = b"9" * 400
HUGE_POLICY = b"""format = 1
min_noise_multiplier = %b
min_roster = 3
min_honest = 3
min_tolerated_colluders = 0
max_participations = 25
max_epsilon = 34.0
delta = 1e-5
"""


def checkpoint() -> bytes:
    weights = np.linspace(-1, 1, 50, dtype=np.float32)
    return pack(Checkpoint(RunState(round=3, weights=weights, clip_norm=0.5), "head", "settings"))


def bundle(*files: tuple[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return buffer.getvalue()


def with_flags(encrypted: int = 0, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A bundle whose directory says this of its file."""
    whole = bundle(("a", b"b" * 99))
    directory = whole.rindex(b"PK\1\2")
    return whole[: directory + 8] + struct.pack("<HH", encrypted, compression) + whole[directory + 12 :]


def with_a_false_size(size: int) -> bytes:
    """A bundle whose directory says that its file of 60 MB has this many bytes."""
    whole = bundle(("a", bytes(60_000_000)))
    directory = whole.rindex(b"PK\1\2")
    return whole[: directory + 24] + struct.pack("<I", size) + whole[directory + 28 :]


def a_run(file: Path) -> RunDirectory:
    return RunDirectory(file.parent, tiny_config())


READERS: dict[str, Callable[[Path], object]] = {
    "policy": lambda file: Policy.from_toml(file),
    "enrolment": lambda file: read_enrolment(file),
    "identity": lambda file: read_identity(file.parent, 0),
    "status": lambda file: read_status(file.parent),
    "ledger": lambda file: Ledger.read(file),
    "client ledger": lambda file: ClientLedger.read(file),
    "approved": lambda file: require_approved(bundle(("a", b"")), file),
    "bundle": lambda file: bundle_digest(file.read_bytes()),
    "contributions": lambda file: Memory(file, 10),
    "metrics": lambda file: a_run(file).metrics(),
    "attempt": lambda file: a_run(file).number_attempt(1),
    "environment": lambda file: a_run(file).claims_privacy,
}
NAMES = {
    "identity": "identity.pem", "status": "status.json", "metrics": "metrics.jsonl", "attempt": "attempt.json",
    "environment": "environment.json",
}  # fmt: skip
DAMAGE: list[tuple[str, str, bytes]] = [
    ("policy", "nested", b"delta = " + NESTED),
    ("policy", "a number of 400 digits", HUGE_POLICY % LONG),
    ("policy", "a number of 5,000 digits", HUGE_POLICY % (b"9" * 5000)),
    ("policy", "no text", b"\xff\xfe"),
    ("enrolment", "nested", b"client = " + NESTED),
    ("enrolment", "a number of 5,000 digits", b"[[client]]\nnumber = " + b"9" * 5000),
    ("status", "nested", NESTED),
    ("status", "a list", b"[]"),
    ("status", "no text", b"\xff\xfe"),
    ("ledger", "nested", NESTED + b"\n"),
    ("ledger", "a nested record", b'{"previous": "lowkey ledger 2", "record": ' + NESTED + b"}\n"),
    ("client ledger", "nested", NESTED + b"\n"),
    ("approved", "no text", b"\xff\xfe"),
    ("identity", "no text", b"-----BEGIN PRIVATE KEY-----\n\xff\n-----END PRIVATE KEY-----\n"),
    ("contributions", "infinity", b"[[0, Infinity]]\n"),
    ("contributions", "nested", NESTED + b"\n"),
    ("contributions", "a client without a number", b'[["x", "x"]]\n'),
    ("contributions", "half a client", b"[[0, 0.5]]\n"),
    ("contributions", "unknown clients", b"[[0, 10]]\n"),
    ("contributions", "an older format", b'{"0": 1}\n'),
    ("metrics", "no text", b"\xff\n"),
    ("metrics", "no round", b"{}\n"),
    ("metrics", "a list", b"[]\n"),
    ("attempt", "no number", b'{"round": 1, "attempt": null}'),
    ("environment", "no truth value", b'{"claims_privacy": 1}'),
    ("bundle", "a directory that points before the file", b"PK\5\6" + bytes(12) + b"\xff\xff\xff\x7f" + bytes(2)),
    ("bundle", "an unknown compression", with_flags(compression=99)),
    ("bundle", "compressed in a way that may ask for gigabytes", with_flags(compression=zipfile.ZIP_LZMA)),
    ("bundle", "encrypted", with_flags(encrypted=1)),
    ("bundle", "a name with a broken encoding", bundle(("é", b"b")).replace("é".encode(), b"\xff\xff")),
    ("bundle", "an extra field that ends too early", bundle(("a", b"b")).replace(b"\0\0\0\0a", b"\0\0\x04\0a")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "_damage", "content"), DAMAGE, ids=[f"{kind}: {how}" for kind, how, _ in DAMAGE])
def test_a_damaged_file_is_refused_with_an_error_of_ours(
    tmp_path: Path, kind: str, _damage: str, content: bytes
) -> None:
    file = tmp_path / NAMES.get(kind, "file")
    file.write_bytes(content)
    file.chmod(0o600)
    assert outcome(READERS[kind], file) == "refused"


@pytest.mark.parametrize("kind", [kind for kind in READERS if kind != "bundle"])
def test_a_directory_in_place_of_a_file_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / NAMES.get(kind, "file")
    file.mkdir(mode=0o700)
    assert outcome(READERS[kind], file) == "refused"


def test_it_is_the_number_that_a_policy_is_refused_for(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(HUGE_POLICY % b"1.0")
    file.chmod(0o600)
    assert outcome(READERS["policy"], file) == "accepted"


def outcome(reader: Callable[[Path], object], file: Path) -> str:
    """How a parser ends: accepted, refused, or the kind of an error that nobody expects."""
    try:
        reader(file)
    except LowkeyError:
        return "refused"
    except Exception as error:
        return type(error).__name__
    return "accepted"


def test_every_flipped_bit_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    whole, file = checkpoint(), tmp_path / "checkpoint"
    file.write_bytes(whole)
    assert unpack(file).state.round == 3
    unseen = []
    for place in range(len(whole)):
        for bit in range(8):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                unpack(file)
            except DamagedCheckpointError:
                continue
            unseen.append((place, bit))
    assert unseen == []


def test_a_checkpoint_that_is_cut_off_or_longer_is_found(tmp_path: Path) -> None:
    whole, file = checkpoint(), tmp_path / "checkpoint"
    for wrong in (*(whole[:size] for size in range(len(whole))), whole + b"\0", whole * 2):
        file.write_bytes(wrong)
        with pytest.raises(DamagedCheckpointError):
            unpack(file)


@pytest.mark.parametrize("said", [100, 50_000_000])
def test_a_bundle_that_lies_about_its_size_does_not_fill_the_memory(said: int) -> None:
    shipped = with_a_false_size(said)
    assert len(shipped) < 100_000
    tracemalloc.start()
    with pytest.raises(LowkeyError):
        bundle_digest(shipped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_two_lists_of_clients_with_one_fingerprint_are_out_of_reach() -> None:
    """At 128 bits an operator who offers both lists needs 2^64 trials to find a pair; at 192 bits it needs 2^96."""
    shown = fingerprint([Enrolled(client=0, name="", key=os.urandom(32))])
    assert len(bytes.fromhex(shown)) >= 24
