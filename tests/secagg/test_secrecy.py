"""What is secret stays so: masks are fresh and uniform, states forget, nothing is printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from lowkey import secagg
from lowkey.errors import InvalidInput, LowkeyError
from lowkey.rng import BitSource, ReplaySecrets
from lowkey.secagg import MemberState, Stage
from lowkey.types import Words
from tests.secagg.cohort import Cohort, make_session, make_vectors, next_attempt

SESSION = make_session(7, 5, 1)


class SameKeys(Cohort):
    """Forces what must never happen: the same secrets in every round and attempt."""

    def source(self, client: int, stage: str) -> BitSource:
        return ReplaySecrets(0).source(client, stage)


def hide(session: secagg.Session, vector: Words, kind: type[Cohort] = Cohort) -> Words:
    cohort = kind(session)
    cohort.advertise()
    cohort.share()
    u = session.roster[3]
    return secagg.mask(cohort.states[u], cohort.deliveries[u], vector, cohort.identities[u])[1]


def masked_zeros(session: secagg.Session, kind: type[Cohort] = Cohort) -> Words:
    return hide(session, np.zeros(session.length, np.uint32), kind)


def test_masks_differ_between_rounds_and_attempts_even_with_the_same_keys() -> None:
    masks = [
        masked_zeros(make_session(7, 5, 1, round=number, attempt=attempt), SameKeys)
        for number, attempt in ((1, 0), (1, 1), (2, 0))
    ]
    repeated = masked_zeros(make_session(7, 5, 1, round=1, attempt=0), SameKeys)
    np.testing.assert_array_equal(masks[0], repeated)  # the keys are really the same
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.count_nonzero(masks[one] == masks[other]) <= 2  # of 50; by chance 1e-9


@pytest.mark.parametrize("low_bits", [False, True])
def test_a_masked_vector_is_uniform(low_bits: bool) -> None:
    """Chi-square over 1024 cells, 256 expected in each; the seed is fixed, a fresh one fails once in 10^6."""
    masked = masked_zeros(make_session(7, 5, 1, length=2**18))
    assert masked.max() < 2**20
    counts = np.bincount(masked & 1023 if low_bits else masked >> 10, minlength=1024)
    statistic = float(((counts - 256.0) ** 2 / 256.0).sum())
    assert chi2.ppf(5e-7, 1023) < statistic < chi2.ppf(1 - 5e-7, 1023)


@pytest.mark.parametrize("content", [1, 2**20 - 1, "mixed"])
def test_a_masked_vector_says_nothing_of_its_size_or_content(content: int | str) -> None:
    """Whatever is hidden, the same mask is added to it, and the tests above say that this mask is fresh and uniform."""
    mixed = make_vectors(SESSION)[SESSION.roster[3]]
    vector = mixed if content == "mixed" else np.full(SESSION.length, content, np.uint32)
    hidden_zeros, hidden = masked_zeros(SESSION), hide(SESSION, vector)
    np.testing.assert_array_equal((hidden - hidden_zeros) % 2**20, vector)
    assert len(secagg.pack(hidden, 20)) == len(secagg.pack(hidden_zeros, 20)) == 125


def secrets_of(state: MemberState) -> list[bytes]:
    kept = [state.sealing_secret, state.mask_secret, state.seed, *state.sealing_keys.values()]
    halves = [half for both in state.shares.values() for half in (both[:33], both[33:])]
    return [secret for secret in (*kept, *halves) if secret]


def test_each_stage_forgets_what_it_no_longer_needs() -> None:
    cohort, vectors = Cohort(SESSION), make_vectors(SESSION)
    u = SESSION.roster[1]
    seen: list[bytes] = []
    cohort.advertise()
    first = cohort.states[u]
    seen += secrets_of(first)
    cohort.share()
    seen += secrets_of(cohort.states[u])
    assert not cohort.states[u].sealing_secret
    cohort.mask(vectors, without=SESSION.roster[:1])
    masked = cohort.states[u]
    seen += secrets_of(masked)
    assert not any((masked.mask_secret, masked.seed, masked.sealing_keys))
    cohort.confirm()
    cohort.reveal()
    last = cohort.states[u]
    assert last.stage is Stage.FINISHED
    assert secrets_of(last) == []
    written = secagg.encode(MemberState, last)
    assert len(seen) > 10
    assert not any(secret in written for secret in seen)
    assert first.seed in secagg.encode(MemberState, first)  # so that the line above could fail


def test_nothing_secret_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    cohort, vectors = Cohort(SESSION), make_vectors(SESSION)
    u = SESSION.roster[1]
    printed = [repr(cohort.identities[u])]
    secrets = [cohort.identities[u].signing_key]
    for step in (cohort.advertise, cohort.share, lambda: cohort.mask(vectors, SESSION.roster[3:4]), cohort.confirm):
        step()
        secrets += secrets_of(cohort.states[u])
        printed += [repr(cohort.states[u]), str(cohort.states[u])]
    revealed, sealed = cohort.reveal()[u], cohort.deliveries[u].sealed
    assert revealed.seed_shares
    assert revealed.mask_shares
    own = secagg.SealedShares(sealed=sealed, commitments={}, signature=b"")
    printed += [repr(cohort.deliveries[u]), repr(revealed), repr(own)]
    secrets += sealed.values()  # whoever learns a key later could open them
    caplog.clear()
    for wrong in (bytes(94), b""):
        fresh = Cohort(SESSION)
        fresh.advertise()
        fresh.share()
        fresh.deliveries[u].sealed[SESSION.roster[2]] = wrong
        fresh.mask(vectors)
    fresh.confirm()
    false = dict.fromkeys(fresh.reveal(), replace(revealed, signature=bytes(64)))
    with pytest.raises(LowkeyError) as error:
        secagg.unmask(fresh.tally, false, fresh.verify_keys)
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2 + len(false)
    printed += [str(error.value), *logged]
    assert not any("\n" in line for line in printed)
    text = "".join(printed)
    for secret in secrets:
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text
        assert str(int.from_bytes(secret, "big")) not in text


def test_adverts_are_fresh_in_every_attempt() -> None:
    first, second = (Cohort(session).advertise() for session in (SESSION, next_attempt(SESSION)))
    keys = [key for adverts in (first, second) for a in adverts for key in (a.mask_key, a.sealing_key, a.seed_digest)]
    assert len(set(keys)) == len(keys) == 42


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(49, np.uint32),
        np.zeros((50, 1), np.uint32),
        np.zeros(50, np.int64),
        np.array([*range(49), 2**20], np.uint32),
    ],
    ids=["short", "matrix", "signed", "too many bits in one number"],
)
def test_vectors_that_do_not_fit_are_refused(vector: Words) -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    cohort.share()
    u = SESSION.roster[0]
    with pytest.raises(InvalidInput, match="vector"):
        secagg.mask(cohort.states[u], cohort.deliveries[u], vector, cohort.identities[u])


def test_the_callers_vector_is_left_alone() -> None:
    cohort, vectors = Cohort(SESSION), make_vectors(SESSION)
    before = {u: vector.copy() for u, vector in vectors.items()}
    cohort.sum(vectors)
    for u, vector in vectors.items():
        np.testing.assert_array_equal(vector, before[u])
