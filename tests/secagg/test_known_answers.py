"""Fixed inputs, fixed outputs: a change here breaks every deployed client."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowkey.errors import InvalidInput
from lowkey.rng import ReplaySecrets
from lowkey.secagg import Advert, Identity
from lowkey.secagg.keys import agreement_key, is_signed_by, pair_key, public_key, random_bytes, self_key
from lowkey.secagg.masks import apply_masks, keep_bits
from lowkey.secagg.messages import (
    adverts_digest,
    commit,
    seed_digest,
    sign_advert,
    sign_revealed,
    sign_shares,
    sign_vector,
    sign_view,
    view_digest,
)
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


def test_bytes_under_the_digests() -> None:
    """Each built by hand: what members sign must not depend on who writes it."""
    advert = Advert(
        sender=2, sealing_key=b"s" * 32, mask_key=b"m" * 32, seed_digest=b"d" * 32, draw=b"w" * 16, signature=b"g" * 64
    )
    one = b"\0\0\0\2" + b"s" * 32 + b"m" * 32 + b"d" * 32 + b"w" * 16 + b"g" * 64
    three = b"\0\0\0\3" + one[4:]
    assert adverts_digest([advert, replace(advert, sender=3)]) == hashlib.sha256(one + three).digest()
    told = bytes.fromhex("00000001 00000005 00000003 00000001 00000002 00000003 00000002 00000001 00000003")
    assert view_digest((5,), (1, 2, 3), (1, 3)) == hashlib.sha256(told).digest()
    assert seed_digest(A) == hashlib.sha256(b"seed|" + A).digest()
    assert commit(A) == hashlib.sha256(b"share|" + A).digest()[:16]


def test_texts_under_the_signatures() -> None:
    identity = Identity(client=2, signing_key=A)
    who = SESSION.digest + b"\0\0\0\2"
    advert = sign_advert(SESSION, identity, b"s" * 32, b"m" * 32, b"d" * 32, b"w" * 16)
    fields = hashlib.sha256(b"s" * 32 + b"m" * 32 + b"d" * 32 + b"w" * 16).digest()
    assert advert.signature == identity.sign(b"lowkey/secagg/v3|advert|" + who + fields)
    view = sign_view(SESSION, identity, b"v" * 32)
    assert view.signature == identity.sign(b"lowkey/secagg/v3|confirm|" + who + hashlib.sha256(b"v" * 32).digest())
    content = hashlib.sha256(b"a" * 32 + bytes.fromhex("01000000 ffff0f00")).digest()  # 1 and 2^20 - 1
    numbers = hashlib.sha256(b"v" * 32 + content).digest()
    vector = sign_vector(SESSION, identity, b"v" * 32, b"a" * 32, np.array([1, 2**20 - 1], np.uint32))
    assert vector.signature == identity.sign(b"lowkey/secagg/v3|vector|" + who + numbers)
    empty, one = "00000000 ffffffff", "00000001 00000002 00000007 6162"  # a table with 7: "ab"
    tables = hashlib.sha256(bytes.fromhex(one + empty)).digest()
    shares = sign_shares(SESSION, identity, {7: b"ab"}, {})
    assert shares.signature == identity.sign(b"lowkey/secagg/v3|shares|" + who + tables)
    revealed = sign_revealed(SESSION, identity, {7: b"ab"}, {})
    assert revealed.signature == identity.sign(b"lowkey/secagg/v3|reveal|" + who + tables)
    assert is_signed_by(identity.verify_key, b"text", identity.sign(b"text"))
    assert not is_signed_by(identity.verify_key, b"other", identity.sign(b"text"))


@pytest.mark.parametrize(
    ("name", "size"), [("sealing_key", 32), ("mask_key", 32), ("seed_digest", 32), ("signature", 64), ("draw", 16)]
)
@pytest.mark.parametrize("more", [-1, 1])
def test_fields_of_an_advert_have_fixed_sizes(name: str, size: int, more: int) -> None:
    """Otherwise bytes could move from one field to the next, under the same signature."""
    advert = sign_advert(SESSION, Identity(client=2, signing_key=A), b"s" * 32, b"m" * 32, b"d" * 32)
    change: dict[str, Any] = {name: bytes(size + more)}
    with pytest.raises(InvalidInput, match="must have 32, 32, 32, 64, and 0 or 16"):
        replace(advert, **change)


def test_verify_keys_of_another_size_are_refused() -> None:
    with pytest.raises(InvalidInput, match="verify key has 31 bytes"):
        is_signed_by(bytes(31), b"text", bytes(64))


def test_random_bytes_are_those_of_the_source() -> None:
    whole = ReplaySecrets(0).source("bytes").bits(9).tobytes()
    for count in range(len(whole) + 1):
        assert random_bytes(ReplaySecrets(0).source("bytes"), count) == whole[:count]


def test_digest_of_a_session_is_stable() -> None:
    assert SESSION.digest.hex() == "8cb19ee08a6efe2bd81b4acba947f3c48090ed673d15e596bbddde77c3cc5587"
