"""A server invites members of one attempt again and again, until it likes whom each of them draws.

With fresh coins for every invitation it would ask each member until its holders are none of 41 whom the server wants to
cut off: 88 invitations on average, at no price. The sum that it learned had the noise of 307 honest members, where 345
were promised. So a member's draw follows from its signing key and the session, however often it is asked.
"""

from __future__ import annotations

from dataclasses import replace

from lowkey import secagg
from lowkey.rng import OSSecrets
from lowkey.secagg import Session
from tests.secagg.cohort import Cohort, make_session, next_attempt

DEFENDS = (
    "A member's holders follow from its signing key and the session: nobody else chooses them, also not by inviting it "
    "again."
)

SESSION = make_session(410, 389, 41, graph="random")


def holders(cohort: Cohort, session: Session, me: int) -> set[int]:
    """Whom a member draws when it is invited, with new secrets each time."""
    _, advert = secagg.advertise(session, cohort.identities[me], OSSecrets().source())
    return set(session.holders_of(me, advert.draw))


def test_a_member_that_is_invited_again_draws_the_same_holders() -> None:
    cohort = Cohort(SESSION)
    for me in SESSION.roster[:20]:
        first = holders(cohort, SESSION, me)
        assert all(holders(cohort, SESSION, me) == first for _ in range(20))


def test_keys_are_fresh_all_the_same() -> None:
    cohort, me, source = Cohort(SESSION), SESSION.roster[0], OSSecrets().source()
    adverts = [secagg.advertise(SESSION, cohort.identities[me], source)[1] for _ in range(20)]
    assert len({advert.mask_key for advert in adverts}) == len({advert.seed_digest for advert in adverts}) == 20
    assert len({advert.draw for advert in adverts}) == 1


def test_only_another_attempt_gives_another_draw_and_it_does_so_for_everybody() -> None:
    """So a server chooses among whole graphs, of which one in 2⁶⁴ is a bad one."""
    cohort, others = Cohort(SESSION), [next_attempt(SESSION), replace(SESSION, run="again"), replace(SESSION, round=2)]
    for me in SESSION.roster[:20]:
        drawn = [holders(cohort, session, me) for session in (SESSION, *others)]
        assert all(one != other for place, one in enumerate(drawn) for other in drawn[:place])


def test_draws_of_members_tell_nothing_about_each_other() -> None:
    """Two members draw the same holder as often as two independent draws do: about 39²/409 = 3.7 on average."""
    cohort = Cohort(SESSION)
    drawn = [holders(cohort, SESSION, me) for me in SESSION.roster[:100]]
    shared = [len(one & other) for place, one in enumerate(drawn) for other in drawn[:place]]
    assert abs(sum(shared) / len(shared) - 39 * 39 / 409) < 0.2  # its deviation is 0.03
