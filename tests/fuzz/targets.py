"""Every parser of bytes that come from another party or from a disk, and what it promises of what it accepts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

from lowkey.deployment import fingerprint, read_enrolment, read_identity, read_status
from lowkey.deployment.guard import bundle_digest, require_approved
from lowkey.errors import InvalidInput, LowkeyError
from lowkey.experiments.checkpoints import DamagedCheckpointError, unpack
from lowkey.flower.nodes import Greeting
from lowkey.flower.pulling import ReplyLimits, fetch_reply
from lowkey.flower.wire import (
    _FROM_MEMBER,
    _TO_MEMBER,
    MESSAGE_BYTES,
    read_reply,
    read_request,
    write_model,
    write_reply,
    write_request,
)
from lowkey.privacy import ClientLedger, Ledger, NormBound, Policy, WireFormat
from lowkey.rng import ReplaySecrets
from lowkey.secagg import MemberState, decode, encode, pack
from lowkey.secagg import unpack as unpack_vector
from lowkey.tabular import load_encoder
from tests.fuzz.artefacts import Artefacts
from tests.tabular.test_encoder import ENCODER


class Undelivered(Exception):
    """Flower's own protobuf refuses these bytes, so that no parser of ours gets to see them."""


class NotCanonical(Exception):
    """A parser accepted something that nobody would have written."""


@dataclass(frozen=True)
class Target:
    """A parser.

    Attributes
    ----------
    name : str
        As in the table.
    seeds : sequence of bytes
        Good input.
    read : function
        Reads bytes, and raises NotCanonical if it accepts what it must not.
    share : float
        Part of all messages that go to it, relative to others.
    declared : tuple of types
        The exceptions by which it refuses.
    """

    name: str
    seeds: Sequence[bytes]
    read: Callable[[bytes], None]
    share: float = 1.0
    declared: tuple[type[Exception], ...] = (LowkeyError,)


def make_targets(made: Artefacts, directory: Path) -> list[Target]:
    """All parsers, with the input that a real run gave them; files are written to this directory."""
    return [*_messages(made), *_proofs(), *_wire(made), *_objects(made), *_files(made, directory)]


def _messages(made: Artefacts) -> list[Target]:
    """The messages and the state of the secure aggregation."""
    seeds: dict[str, list[bytes]] = {}
    for content in [*made.requests, *(reply for _, reply in made.replies)]:
        for record in content.config_records.values():
            if "kind" in record:
                seeds.setdefault(str(record["kind"]), []).append(record["message"])  # type: ignore[arg-type]
    kinds = {**_TO_MEMBER, **_FROM_MEMBER}

    def reader(kind: type) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            _require(encode(kind, decode(kind, data)) == data)

        return read

    def read_packed(data: bytes) -> None:
        bits = 9 if len(data) < 80 else 20
        _require(pack(unpack_vector(data, bits, 41), bits) == data)

    rng = np.random.default_rng(0)
    vectors = [pack(rng.integers(0, 2**bits, 41, dtype=np.uint32), bits) for bits in (9, 20) for _ in range(5)]
    return [
        *(Target(name, found, reader(kinds[name]), 3.0) for name, found in sorted(seeds.items())),
        Target("MemberState", made.states, reader(MemberState), 3.0, (InvalidInput,)),
        Target("packed vector", vectors, read_packed, 2.0, (InvalidInput,)),
    ]


def _proofs() -> list[Target]:
    """Proofs that a vector is short; a refusal is no exception here, and only the proof itself may be accepted."""
    bound, source = NormBound(length=3, bits=20, square=100), ReplaySecrets(7).source("proof")
    proof = bound.prove(np.array([1, 2, 3], np.uint32), 5, bytes(32), 1, source)

    def read(data: bytes) -> None:
        if not bound.honest({1: data}, bytes(32)):
            raise InvalidInput("this proof does not hold")
        _require(data == proof)

    return [Target("norm proof", [proof], read, 0.1, (InvalidInput,))]


def _wire(made: Artefacts) -> list[Target]:
    """Requests, replies and greetings, as Flower hands them over."""
    model = next(content for content in made.requests if "model" in content)
    coordinates = len(model.array_records["model"]["model"].data) // 4

    def read_a_request(data: bytes) -> None:
        content = _records(data)
        request = read_request(content, coordinates)
        again = write_request(request, None if request.weights is None else write_model(request.weights))
        _require(again == content)

    asked = [(read_request(request, coordinates), reply) for request, reply in made.replies]
    replies: list[Target] = []
    for name, private in (("reply", True), ("open reply", False)):
        chosen = [
            (request, reply)
            for request, reply in asked
            if (request.message is not None) == private and request.round == 1
        ]
        sizes = {len(reply.array_records["vector"]["vector"].data) for _, reply in chosen if "vector" in reply}
        wire = _wire_format(sizes.pop(), private=private)

        def read_a_reply(data: bytes, *, chosen: Any = chosen, wire: WireFormat = wire) -> None:
            content, refused = _records(data), InvalidInput("no request")
            for request in {type(request.message): request for request, _ in chosen}.values():
                try:
                    _require(write_reply(read_reply(content, request, wire), wire) == content)
                except InvalidInput as error:
                    refused = error
                else:
                    return
            raise refused

        replies.append(Target(name, [_bytes(reply) for _, reply in chosen], read_a_reply, 3.0, (InvalidInput,)))

    def read_greeting(data: bytes) -> None:
        content = _records(data)
        _require(Greeting.read(content).write() == content)

    return [
        Target("request", [_bytes(content) for content in made.requests], read_a_request, 4.0, (InvalidInput,)),
        *replies,
        Target("greeting", [_bytes(content) for content in made.greetings], read_greeting, 3.0, (InvalidInput,)),
    ]


def _wire_format(size: int, *, private: bool) -> WireFormat:
    return WireFormat(bits=20, length=8 * size // 20) if private else WireFormat(bits=None, length=size // 4)


def _objects(made: Artefacts) -> list[Target]:
    """Objects of a reply as they are on the wire, of which one is damaged."""
    _, content = next((request, reply) for request, reply in made.replies if "vector" in reply)
    about = Metadata(1, "", 7, 1, "m", "", 1.8e9, 60.0, "train.contribute")
    reply = make_message(about, content)
    whole = {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
    limits = ReplyLimits(arrays=len(content.array_records["vector"]["vector"].data), rest=MESSAGE_BYTES)
    names = list(whole)

    def read(data: bytes) -> None:
        kind = data.partition(b" ")[0]
        damaged = next((name for name in names if whole[name].startswith(kind + b" ")), names[-1])
        pull = (whole | {damaged: data}).__getitem__
        fetch_reply(lambda ids, get, **_: {name: get(name) for name in ids}, names, pull, limits, 1.0)

    return [Target("Flower's objects", list(whole.values()), read, 2.0, (ObjectPullError,))]


def _files(made: Artefacts, directory: Path) -> list[Target]:
    def at(name: str, read: Callable[[Path, bytes], object]) -> Callable[[bytes], None]:
        file = directory / name
        file.touch(mode=0o600)

        def read_file(data: bytes) -> None:
            file.write_bytes(data)
            read(file, data)

        return read_file

    prefixes = {
        kind: {b"".join(lines[:count]) for lines in [made.files[kind][0].splitlines(True)] for count in range(99)}
        for kind in ("ledger", "client ledger")
    }
    approved = bundle_digest(made.files["bundle"][0]).encode()
    bundles = {bundle_digest(good): _contents(good) for good in made.files["bundle"]}

    def read_policy(file: Path, _data: bytes) -> None:
        policy = Policy.from_toml(file)
        file.write_text(policy.to_toml(), encoding="utf-8")
        _require(Policy.from_toml(file) == policy)

    def read_list(file: Path, _data: bytes) -> None:
        clients = read_enrolment(file)
        _require(len({c.client for c in clients}) == len({c.key for c in clients}) == len(clients))
        _require(len(fingerprint(clients)) == 59)

    def read_key(file: Path, _data: bytes) -> None:
        _require(len(read_identity(file.parent, 0).verify_key) == 32)

    def read_ledger(file: Path, data: bytes) -> None:
        Ledger.read(file)
        _require(data in prefixes["ledger"])

    def read_client_ledger(file: Path, data: bytes) -> None:
        ClientLedger.read(file)
        _require(data in prefixes["client ledger"])

    def read_checkpoint(file: Path, data: bytes) -> None:
        unpack(file)
        _require(data in made.files["checkpoint"])

    def read_bundle(data: bytes) -> None:
        digest = bundle_digest(data)
        _require(digest not in bundles or _contents(data) == bundles[digest])

    def read_approved(file: Path, data: bytes) -> None:
        require_approved(made.files["bundle"][0], file)
        _require(approved in data)

    def read_encoder(file: Path, _data: bytes) -> None:
        _require(load_encoder(file) == ENCODER)

    ENCODER.save(directory / "encoder.json")
    encoder = (directory / "encoder.json").read_bytes()
    files, checkpoint_errors = made.files, (DamagedCheckpointError, LowkeyError)
    return [
        Target("policy", files["policy"], at("policy.toml", read_policy)),
        Target("enrolment", files["enrolment"], at("enrolled.toml", read_list)),
        Target("identity", files["identity"], at("identity.pem", read_key)),
        Target("status", files["status"], at("status.json", lambda file, _: read_status(file.parent).keys())),
        Target("ledger", files["ledger"], at("ledger.jsonl", read_ledger)),
        Target("client ledger", files["client ledger"], at("own.jsonl", read_client_ledger)),
        Target("checkpoint", files["checkpoint"], at("checkpoint", read_checkpoint), declared=checkpoint_errors),
        Target("encoder", [encoder], at("encoder.json", read_encoder)),
        Target("bundle", files["bundle"], read_bundle),
        Target("approved apps", files["approved"], at("approved.txt", read_approved)),
    ]


def _require(held: bool) -> None:
    if not held:
        raise NotCanonical


def _bytes(content: RecordDict) -> bytes:
    return bytes(recorddict_to_proto(content).SerializeToString())


def _records(data: bytes) -> RecordDict:
    """What Flower makes of these bytes."""
    try:
        return recorddict_from_proto(ProtoRecordDict.FromString(data))
    except Exception as error:
        raise Undelivered from error


def _contents(bundle: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
