"""Proofs under masks: honest ones hold and add up, whoever lies is found and nobody else, and nothing is shown."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lowkey.errors import CannotContribute, InvalidInput
from lowkey.rng import OSSecrets

pytest.importorskip("nacl", reason="proofs need the extra 'proofs'")

from lowkey.privacy import ClientMechanism, ClientPrivacy, NormBound, make_sampling, proofs
from lowkey.privacy.curve import NOTHING, ORDER, combine, commit, generators, is_point, random_scalars, scalar_bytes

SESSION, OTHER = b"s" * 32, b"t" * 32
BOUND = NormBound(length=5, bits=20, square=1000)
SOURCE = OSSecrets().source()
POINTS = 6 * 32
SHOWN = POINTS + 128 * 16


def words(*values: int) -> np.ndarray:
    return np.array(values, np.int64).astype(np.uint32) & np.uint32(2**20 - 1)


VECTORS = {3: words(1, -2, 3, 0, 30), 7: words(0, 0, 0, 0, 0), 8: words(-31, 0, 0, 6, 1), 20: words(4, 4, 4, 4, 4)}
BLINDINGS = dict(zip(VECTORS, random_scalars(SOURCE, 4), strict=True))
PROOFS = {client: BOUND.prove(v, BLINDINGS[client], SESSION, client, SOURCE) for client, v in VECTORS.items()}


def test_true_proofs_hold_and_their_sum_opens() -> None:
    assert BOUND.honest(PROOFS, SESSION) == set(VECTORS)
    assert {len(proof) for proof in PROOFS.values()} == {BOUND.num_bytes}
    total = words(-26, 2, 7, 10, 35)
    assert BOUND.opens(PROOFS.values(), total, sum(BLINDINGS.values()))
    assert BOUND.opens(PROOFS.values(), total, sum(BLINDINGS.values()) + 5 * ORDER)
    assert not BOUND.opens(PROOFS.values(), total + words(0, 0, 1, 0, 0), sum(BLINDINGS.values()))
    assert not BOUND.opens(PROOFS.values(), total, sum(BLINDINGS.values()) + 1)
    assert not BOUND.opens(list(PROOFS.values())[1:], total, sum(BLINDINGS.values()))


def test_the_bound_is_exact() -> None:
    tight = NormBound(length=2, bits=20, square=25)
    assert tight.honest({1: tight.prove(words(3, -4), 9, SESSION, 1, SOURCE)}, SESSION) == {1}
    with pytest.raises(CannotContribute, match="longer than it can prove"):
        tight.prove(words(3, -5), 9, SESSION, 1, SOURCE)
    assert tight.fits(words(3, -4))
    assert not tight.fits(words(3, -5))


def claimed(values: Any, rest: int, client: int = 7) -> bytes:
    """A liar's proof: it follows the protocol, but for a remainder that it makes up."""
    context = SESSION + client.to_bytes(8, "big")
    return BOUND._claim(np.asarray(values), rest, BLINDINGS[client], context, SOURCE)


def changed(position: int) -> bytes:
    proof = bytearray(PROOFS[7])
    proof[position] ^= 1
    return bytes(proof)


def larger_answer() -> bytes:
    """The same number in another encoding."""
    first = int.from_bytes(PROOFS[7][SHOWN : SHOWN + 32], "little") + ORDER
    return PROOFS[7][:SHOWN] + first.to_bytes(32, "little") + PROOFS[7][SHOWN + 32 :]


def with_commitment(commitment: bytes) -> bytes:
    return commitment + PROOFS[7][32:]


LIES: dict[str, Callable[[], bytes]] = {
    "a vector that is a little long": lambda: claimed([32, 0, 0, 0, 0], 0),
    "another remainder": lambda: claimed([1, 0, 0, 0, 0], 1000),
    "a remainder below zero": lambda: claimed([32, 0, 0, 0, 0], -24 % 2**10),
    "a long vector": lambda: claimed([400_000, 0, 0, 0, 0], 0),
    "another's proof": lambda: PROOFS[3],
    "another's commitment": lambda: with_commitment(PROOFS[3][:32]),
    "another session": lambda: BOUND.prove(VECTORS[7], 1, OTHER, 7, SOURCE),
    "another bound": lambda: replace(BOUND, square=1001).prove(VECTORS[7], 1, SESSION, 7, SOURCE),
    "one byte less": lambda: PROOFS[7][:-1],
    "one byte more": lambda: PROOFS[7] + b"\0",
    "nothing": lambda: b"",
    "the neutral point": lambda: with_commitment(NOTHING),
    "no point": lambda: with_commitment(b"\xff" * 32),
    "an answer above the order": larger_answer,
    "zeros": lambda: PROOFS[7][:32] + bytes(BOUND.num_bytes - 32),
    **{f"byte {at}": partial(changed, at) for at in (0, 40, 150, POINTS, SHOWN - 17, SHOWN, BOUND.num_bytes - 32)},
}


@pytest.mark.parametrize("lie", LIES)
def test_liars_are_found_and_nobody_else(lie: str) -> None:
    assert BOUND.honest(PROOFS | {7: LIES[lie]()}, SESSION) == set(VECTORS) - {7}


def test_squares_that_wrap_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two huge numbers whose squares cancel modulo the order: the sums of subsets give them away.

    The sums have no room in a proof. A liar that shows others breaks the equation; an honest member does not.
    """
    huge = np.zeros(5, object)
    huge[0] = random_scalars(SOURCE, 1)[0]
    huge[1] = huge[0] * pow(2, (ORDER - 1) // 4, ORDER) % ORDER
    assert (huge[0] ** 2 + huge[1] ** 2) % ORDER == 0
    with pytest.raises(OverflowError):
        claimed(huge, 1000)
    large = np.array([2**110, 0, 0, 0, 0], object)
    assert BOUND.honest({7: claimed(large, 0)}, SESSION) == set()  # there is room, but they are too large
    written = proofs._numbers
    monkeypatch.setattr(proofs, "_numbers", lambda shown: written(value % 2**BOUND._mask_bits for value in shown))
    for lie in (huge, large):
        assert BOUND.honest({7: claimed(lie, 1000)}, SESSION) == set()
    assert BOUND.honest({7: claimed([0, 0, 0, 0, 0], 1000)}, SESSION) == {7}


def test_all_liars_are_found_together() -> None:
    lies = {client: claimed([400 + client, 0, 0, 0, 0], 0) for client in (7, 8)}
    assert BOUND.honest(PROOFS | lies, SESSION) == {3, 20}
    assert BOUND.honest({}, SESSION) == set()


def test_what_is_shown_is_hidden_by_its_masks() -> None:
    """Kolmogorov and Smirnov, false alarm 1e-9: the same for zeros and for a vector at the bound."""
    for vector in (words(0, 0, 0, 0, 0), words(31, 0, 0, 6, 1)):
        shown = []
        for _ in range(10):
            text = BOUND.prove(vector, random_scalars(SOURCE, 1)[0], SESSION, 1, SOURCE)
            shown += [int.from_bytes(text[i : i + 16], "little") for i in range(POINTS, SHOWN, 16)]
        assert stats.kstest(np.array(shown, float) / 2.0**BOUND._mask_bits, "uniform").pvalue > 1e-9
    assert BOUND._mask_bits >= (5 * 31).bit_length() + 64 + 7


def test_proofs_of_one_vector_differ() -> None:
    again = BOUND.prove(VECTORS[3], BLINDINGS[3], SESSION, 3, SOURCE)
    assert again[:32] == PROOFS[3][:32]
    assert again[32:64] != PROOFS[3][32:64]


def test_commitments_by_hand() -> None:
    g, h = generators("values", 2), generators("blinding", 1)
    assert commit("values", [3, -1], 5) == combine([3, -1, 5], (*g, *h))
    assert commit("values", [0, 0], 5) == combine([5], h)
    assert combine([], []) == NOTHING
    assert len({*generators("values", 50), *generators("beside", 50), *generators("one", 1), *h}) == 102
    assert all(map(is_point, generators("values", 50)))
    assert hashlib.sha256(b"".join((*g, *h))).hexdigest()[:16] == "632a8c1a3d1967fc"  # the same on every machine
    assert scalar_bytes(-1) == scalar_bytes(ORDER - 1)


def test_vectors_that_are_too_long_for_proofs_are_refused() -> None:
    with pytest.raises(InvalidInput, match="too long for proofs"):
        NormBound(length=100, bits=20, square=2**120)


@pytest.mark.parametrize("clip", ["fixed", "adaptive"])
def test_a_mechanism_asks_for_what_honest_members_reach(clip: Any) -> None:
    sampling = make_sampling("all", population=40, cohort=40)
    given: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 3.0, "bits": 20, "max_contributions": 9}
    record = ClientMechanism(settings=ClientPrivacy(**given, clip=clip, proofs=True), sampling=sampling)
    bound, encoding = record.norm_bound(60), record.encoding(60)
    assert bound is not None
    assert (bound.length, bound.bits) == (encoding.wire_length, 20)
    least = math.sqrt(encoding.sensitivity**2 + encoding.share_std**2 * encoding.wire_length)
    assert least < math.sqrt(bound.square) < 2.5 * least
    sent = record.protect(None, length=60, clip_norm=1.0, source=SOURCE).value
    assert bound.fits(sent)
    assert bound.honest({2: bound.prove(sent, 77, SESSION, 2, SOURCE)}, SESSION) == {2}
    assert record.promise().clip_rule.endswith(" proven")
    unproven = ClientMechanism(settings=ClientPrivacy(**given, clip=clip), sampling=sampling)
    assert unproven.norm_bound(60) is None
    assert not unproven.promise().clip_rule.endswith(" proven")
