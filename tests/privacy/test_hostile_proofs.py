"""What a hostile member may still try against proofs under masks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowkey.errors import InvalidInput, RoundFailed
from lowkey.federation import Reply
from lowkey.rng import OSSecrets
from tests.attacks import test_lies_under_masks as masks

pytest.importorskip("nacl", reason="proofs need the extra 'proofs'")

import nacl.bindings as sodium

from lowkey.privacy import ClientMechanism, NormBound
from lowkey.privacy.curve import NOTHING, add, generators, is_point, scalar_bytes
from lowkey.privacy.encoding import exact_square

SESSION, SOURCE = b"s" * 32, OSSecrets().source()
SMALL = NormBound(length=2, bits=20, square=100)


def test_squares_of_a_plain_vector_do_not_wrap() -> None:
    """2^18 numbers of 24 bits: their squares add up to 2^64, which is 0 in 64 bits."""
    assert exact_square(np.full(2**18, -(2**23), np.int64)) == 2**64


def test_a_proof_that_no_message_has_room_for_is_refused_before_the_run() -> None:
    with pytest.raises(InvalidInput, match=r"compress more, or do without privacy\.proofs"):
        NormBound(length=83_200, bits=20, square=10**9)


def test_points_outside_of_the_group_are_refused() -> None:
    """A point of order 2 added to one of the group. libsodium before 2025-12-30 takes it (CVE-2025-69277)."""
    order_two = (2**255 - 20).to_bytes(32, "little")
    mixed = sodium.crypto_core_ed25519_add(generators("one", 1)[0], order_two)
    assert add([mixed, mixed]) == add(2 * generators("one", 1))
    assert not is_point(mixed)


def test_no_library_with_that_defect_is_allowed() -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    (least,) = re.findall(r"pynacl>=([\d.]+)", " ".join(extras["proofs"]))
    assert tuple(map(int, least.split("."))) >= (1, 6, 2)


def test_the_work_that_liars_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """One liar of n: one sum over all generators for each halving, not two; if all lie, n and not 2n − 1."""
    sums, honest = 0, {i: SMALL.prove(np.array([1, 2], np.uint32), i + 1, SESSION, i, SOURCE) for i in range(8)}
    lies = {i: proof[:-32] + scalar_bytes(7) for i, proof in honest.items()}
    own = NormBound._error

    def counted(*given: Any) -> Any:
        nonlocal sums
        sums += 1
        return own(*given)

    monkeypatch.setattr(NormBound, "_error", counted)
    assert SMALL.honest(honest | {5: lies[5]}, SESSION) == set(honest) - {5}
    assert sums <= 1 + 3
    sums = 0
    assert SMALL.honest(lies, SESSION) == set()
    assert sums <= 8


def test_a_proof_of_the_wrong_size_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every member can make the server keep as much as a message holds, until the last member has answered."""
    own, sizes = masks.crowd(proofs=True), list[int]()
    honest = NormBound.honest

    def kept(bound: NormBound, proofs: Mapping[int, bytes], session: bytes) -> set[int]:
        sizes.extend(len(proof) - bound.num_bytes for proof in proofs.values())
        return honest(bound, proofs, session)

    def long(reply: Reply, told: tuple[bytes, bytes]) -> Reply:
        return masks.signed(own, reply, told, np.asarray(reply.vector, np.uint32), bytes(2**20))

    monkeypatch.setattr(NormBound, "honest", kept)
    masks.play(own, lambda ask: masks.Lying(ask, long))
    assert set(sizes) == {0}


def test_a_commitment_to_another_blinding_makes_the_round_fail() -> None:
    """A true proof for another blinding than that of the masks; nobody's vector is used."""
    own = masks.crowd(proofs=True)

    class Other(NormBound):
        def prove(self, vector: Any, blinding: int, session: bytes, client: int, source: Any) -> bytes:
            return super().prove(vector, blinding + (client == masks.LIAR), session, client, source)

    class Liar(ClientMechanism):
        def norm_bound(self, num_measurements: int) -> NormBound | None:
            bound = super().norm_bound(num_measurements)
            return bound and Other(length=bound.length, bits=bound.bits, square=bound.square)

    honest = own.privacy
    assert isinstance(honest, ClientMechanism)
    theirs = replace(own, privacy=Liar(settings=honest.settings, sampling=honest.sampling))
    with pytest.raises(RoundFailed, match="not that of the vectors"):
        masks.play(own, lambda ask: ask, theirs=theirs)


def test_the_neutral_point_in_both_encodings() -> None:
    assert not is_point(NOTHING)
    assert not is_point(b"\x01" + bytes(30) + b"\x80")
