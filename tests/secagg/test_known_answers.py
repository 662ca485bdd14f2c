"""Fixed inputs, fixed outputs: a change here breaks every deployed client."""

from __future__ import annotations

import hashlib

import numpy as np

from lowkey.secagg.keys import agreement_key, pair_key, public_key, self_key
from lowkey.secagg.masks import apply_masks, keep_bits
from lowkey.types import Words
from tests.secagg.cohort import make_session

SESSION = make_session(3, 3, roster=(1, 2, 3))
A, B = b"\1" * 32, b"\2" * 32
PUBLIC_A = "a4e09292b651c278b9772c569f5fa9bb13d906b46ab68c9df9dc2b4409f8a209"
PUBLIC_B = "ce8d3ad1ccb633ec7b70c17814a5c76ecd029685050d344745ba05870e587d59"
SHARED = "2ed76ab549b1e73c031eb49c9448f0798aea81b698279a0c3dc3e49fbfc4b953"
SALT = "cb5dd7efa1c269979344205fa2cd90c7d7f39317e05f9e7ded0a2cc67d9ec3aa"
MASK_KEY = "38c00b9097ebffce2fc162d2dd3776767cc5c15c7fb402533c965e19be0a09c8"


def expand(key: bytes, length: int, bits: int) -> Words:
    mask = np.zeros(length, np.uint32)
    apply_masks(mask, add=[key])
    keep_bits(mask, bits)
    return mask


def test_key_agreement() -> None:
    assert public_key(A).hex() == PUBLIC_A
    assert public_key(B).hex() == PUBLIC_B
    own, peer = agreement_key(A), agreement_key(B)
    assert own.exchange(peer.public_key()).hex() == SHARED


def test_salt_of_run_round_and_attempt() -> None:
    assert SESSION.salt.hex() == SALT


def test_both_members_derive_the_known_mask_key() -> None:
    assert pair_key(SESSION, b"mask", agreement_key(A), 1, bytes.fromhex(PUBLIC_B), 2).hex() == MASK_KEY
    assert pair_key(SESSION, b"mask", agreement_key(B), 2, bytes.fromhex(PUBLIC_A), 1).hex() == MASK_KEY


def test_mask_of_a_pair() -> None:
    assert expand(bytes.fromhex(MASK_KEY), 6, 20).tolist() == [466285, 495992, 82285, 149252, 684449, 761885]


def test_mask_of_a_member_for_itself() -> None:
    assert expand(self_key(SESSION, 1, b"\3" * 32), 4, 20).tolist() == [590342, 375732, 2324, 268559]


def test_long_masks_continue_the_same_stream() -> None:
    whole = expand(A, 3 * 2**15 + 5, 32)
    assert hashlib.sha256(whole.tobytes()).hexdigest() == (
        "f5e5c5172fd2bf87c5248e5abb6eb0fa54cdb938a839bf0a39337e5f9bbaa2b2"
    )
    np.testing.assert_array_equal(whole[:7], expand(A, 7, 32))


def test_adding_and_subtracting_a_mask_is_nothing() -> None:
    vector = np.arange(100_000, dtype=np.uint32)
    apply_masks(vector, add=[A, B], subtract=[B, A])
    np.testing.assert_array_equal(vector, np.arange(100_000))


def test_digest_of_a_session_is_stable() -> None:
    assert SESSION.digest.hex() == "c07c44bf7cf91cc8a54362baa5bcba02ad9405b65ab25733b19cdf579027b6dc"
