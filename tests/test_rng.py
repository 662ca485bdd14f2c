"""Randomness: public streams are stable, secrets are not repeatable, draws have the right law."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import lowkey
from lowkey.errors import InvalidInput
from lowkey.rng import (
    OSSecrets,
    PublicStream,
    ReplaySecrets,
    coin_flips,
    generator,
    permutation,
    random_signs,
    subset,
)


def test_public_stream_known_answer() -> None:
    """Fixed for ever: deployed clients of different versions must agree on the shuffle."""
    assert PublicStream(0, "chunked-dct", 0).bits(2).tolist() == KNOWN_BITS
    assert permutation(PublicStream(7, "x"), 8).tolist() == KNOWN_PERMUTATION
    assert subset(PublicStream(7, "x"), 10, 4).tolist() == KNOWN_SUBSET
    assert random_signs(PublicStream(7, "x"), 10).tolist() == KNOWN_SIGNS


KNOWN_BITS = [3787370852818563403, 15747783584676947865]
KNOWN_PERMUTATION = [0, 5, 3, 2, 1, 7, 4, 6]
KNOWN_SUBSET = [0, 1, 5, 9]
KNOWN_SIGNS = [-1, -1, -1, 1, -1, -1, -1, -1, 1, 1]  # bytes ef and 2f, highest bit first


def test_names_make_streams_independent() -> None:
    assert generator(0, "a").integers(2**60) == generator(0, "a").integers(2**60)
    drawn = {int(generator(seed, *names).integers(2**60)) for seed in (0, 1) for names in (("a",), ("b",), ("a", 1))}
    assert len(drawn) == 6


def test_permutation_and_subset_are_what_they_say() -> None:
    order = permutation(PublicStream(1, "x"), 1000)
    assert sorted(order.tolist()) == list(range(1000))
    chosen = subset(PublicStream(1, "x"), 1000, 10)
    assert len(set(chosen.tolist())) == 10
    assert chosen.tolist() == sorted(chosen.tolist())
    assert subset(PublicStream(1, "x"), 5, 5).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidInput):
        subset(PublicStream(1, "x"), 5, 6)


def test_subset_is_uniform() -> None:
    """Every item equally often; chi-square, false alarm 1e-6."""
    source = OSSecrets().source()
    counts = np.bincount(np.concatenate([subset(source, 20, 5) for _ in range(4000)]), minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_secrets_never_repeat_and_ignore_numpys_seed() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        draws.append(OSSecrets().source("noise", 1, 2).bits(4).tolist())
    assert draws[0] != draws[1]


def test_replay_repeats_and_claims_nothing() -> None:
    first, again = (ReplaySecrets(3).source("noise", 1).bits(3).tolist() for _ in range(2))
    assert first == again
    assert ReplaySecrets.claims_privacy is False
    assert OSSecrets.claims_privacy is True


def test_coin_flips() -> None:
    source = OSSecrets().source()
    assert coin_flips(source, 10, 1.0).tolist() == list(range(10))
    heads = sum(len(coin_flips(source, 1000, 0.1)) for _ in range(100))
    assert stats.binomtest(heads, 100_000, 0.1).pvalue > 1e-6


def test_no_ordinary_generator_where_secrets_are_due() -> None:
    """Noise, sampling, rounding, keys and masks never import a seeded generator."""
    root = Path(lowkey.__file__).parent
    for file in [*root.glob("privacy/*.py"), *root.glob("secagg/*.py")]:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"np\.random|import random|generator\(", text), file.name
