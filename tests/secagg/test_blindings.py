"""Blindings of commitments cancel as masks do: the server learns their sum over the survivors, and no single one."""

from __future__ import annotations

import pytest

from lowkey import secagg
from lowkey.errors import ProtocolViolation, RoundFailed
from lowkey.secagg.masks import scalar_mask
from tests.secagg.cohort import Cohort, make_session, make_vectors


def blindings(cohort: Cohort) -> dict[int, int]:
    return {u: secagg.blinding(cohort.states[u], delivery) for u, delivery in cohort.deliveries.items()}


@pytest.mark.parametrize("dropouts", [{}, {0: 2}, {1: 2}, {2: 2}, {1: 1, 2: 1}, {3: 1, 4: 1}], ids=str)
def test_the_sum_over_survivors_is_learned(dropouts: dict[int, int]) -> None:
    session = make_session(12, 10, 2)
    waiting = list(session.roster[2:8:2])
    gone = {stage: [waiting.pop() for _ in range(count)] for stage, count in dropouts.items()}
    cohort, vectors = Cohort(session, through_bytes=True), make_vectors(session)
    cohort.advertise(gone.get(0, ()))
    cohort.share(gone.get(1, ()))
    own = blindings(cohort)
    survivors = cohort.mask(vectors, gone.get(2, ()))
    cohort.confirm(gone.get(3, ()))
    cohort.reveal(gone.get(4, ()))
    assert secagg.unmask(cohort.tally, cohort.revealed, cohort.verify_keys).blinding == sum(own[u] for u in survivors)
    assert len({value % 2**252 for value in own.values()}) == len(own)
    assert min(abs(value) for value in own.values()) > 2**400


def test_blindings_change_with_attempt_and_need_all_shares() -> None:
    values = []
    for attempt in (0, 1):
        cohort = Cohort(make_session(4, 3, attempt=attempt))
        cohort.advertise()
        cohort.share()
        values.append(blindings(cohort))
    assert not set(values[0].values()) & set(values[1].values())
    cohort.mask(make_vectors(cohort.session))
    with pytest.raises(RoundFailed, match="shares do not recover"):
        secagg.unmask(cohort.tally, {}, cohort.verify_keys)
    with pytest.raises(ProtocolViolation, match="this step comes once"):
        secagg.blinding(cohort.states[3], cohort.deliveries[3])


def test_known_answer() -> None:
    assert hex(scalar_mask(add=[bytes(32)]))[:20] == "0x4c68417a5185ff46eb"
    assert scalar_mask(add=[b"a" * 32, b"b" * 32], subtract=[b"b" * 32]) == scalar_mask(add=[b"a" * 32])
