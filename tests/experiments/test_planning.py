"""Plans: candidates side by side, whose figures are those of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowkey import secagg
from lowkey.errors import InvalidInput
from lowkey.experiments import Plan, Wishes, load_config, plan
from lowkey.federation import protocol_bytes, scheme
from lowkey.privacy import ClientPrivacy
from lowkey.rng import OSSecrets
from lowkey.secagg import Advert, Confirmation, Identity, Masked, Revealed, SealedShares, Session


@pytest.fixture(scope="module")
def images() -> Plan:
    return plan(Wishes(limit=0.5), "fashion-mnist/private")


def test_the_recommended_settings_within_half_a_megabit_are_the_small_preset(images: Plan) -> None:
    best, preset = images.recommended, load_config("fashion-mnist/private-small")
    assert best is not None
    same = ("model", "federation", "schedule", "privacy", "server", "averaging", "training")
    assert [getattr(best.resolved, name) for name in same] == [getattr(preset, name) for name in same]
    assert (best.features, best.numbers, best.size) == (400, 4010, 4410)
    assert best.released <= 1.0 < best.server
    assert best.traffic.vectors_up == pytest.approx(400 * 28 / 8 + 228 * 160 / 6000 * 4010 * 20 / 8)
    assert best.harm == pytest.approx(1.09 * 0.9 / 2)  # rows of norm √1.09, ten classes, κ = 1


def test_what_does_not_fit_is_told_with_the_reason(images: Plan) -> None:
    wide, _, network = images.candidates
    assert wide.everybody
    assert wide.server == pytest.approx(wide.released)
    assert wide.reasons == ("61.3 Mbit of vectors, above the limit of 0.5 Mbit",)
    assert (network.size, network.features, network.harm, network.feasible) == (1_663_370, None, None, False)
    assert "170 rounds of 100 features take" in images.refused[0]
    told = " ".join(images.verdict)
    assert "A network of 1663370 parameters cannot be learned by 6000 clients" in told
    assert "What can: head, 400 features." in told


def test_few_clients_learn_small_heads_and_no_network() -> None:
    made = plan(Wishes(clients=300, features=900, epsilon=1.0))
    best, network = made.recommended, made.candidates[-1]
    assert best is not None
    assert (best.features, best.who, best.resolved.schedule.rounds) == (900, "everybody", 66)
    assert best.harm == pytest.approx(1 / 8)  # logistic
    assert network.config.codec.ratio == 0.01
    assert network.signal < 0.1
    assert [one.features for one in made.candidates] == [900, 400, 900, None]
    assert "network of 1663370 parameters cannot be learned by 300 clients" in made.verdict[0]


def test_hopeless_plans_say_how_many_clients_would_do() -> None:
    made = plan(Wishes(clients=20, features=400, epsilon=1.0))
    assert made.recommended is None
    (enough,) = (int(word) for word in made.verdict[-1].split() if word.isdigit() and word != "400")
    more = plan(Wishes(clients=enough + 1, features=400, epsilon=1.0)).recommended
    fewer = plan(Wishes(clients=enough - 2, features=400, epsilon=1.0)).recommended
    assert more is not None
    assert fewer is None


def test_a_limit_sizes_the_head_of_everybody_too() -> None:
    made = plan(Wishes(clients=1000, features=2000, classes=10, epsilon=1.0, limit=10.0, parameters=1000))
    best = made.recommended
    assert best is not None
    assert best.everybody
    assert best.features is not None
    assert best.features % 100 == 0
    wider = 10 * 100 * (best.resolved.schedule.last_round - 1) * 24 / 8
    assert best.traffic.vectors_up <= 10e6 / 8 < best.traffic.vectors_up + wider + 100 * 28 / 8


@pytest.mark.parametrize(
    ("wishes", "source", "named"),
    [
        ({"clients": 2}, None, "--clients is 2"),
        ({"clients": 20}, None, "--features and --epsilon are missing"),
        ({"clients": 20, "features": 5, "epsilon": 0.0}, None, "--epsilon is 0"),
        ({"clients": 20, "features": 5, "epsilon": 1.0, "delta": 0.2}, None, "below 0.05"),
        ({"clients": 20, "features": 5, "epsilon": 1.0, "dropouts": 0.4}, None, "dropouts is 0.4"),
        ({"clients": 20, "features": 5, "epsilon": 1.0, "cohort": 20}, None, "--cohort is 20"),
        ({"classes": 3}, "fashion-mnist/private", "has its own task"),
        ({"features": 4000}, "fashion-mnist/private", "at most 3969"),
        ({}, "fashion-mnist/fl-cs-dp-r0.05", "name demo/private or fashion-mnist/private"),
        ({"features": 5}, "hospital/synthetic/private", "no setting model.features"),
    ],
)
def test_impossible_input_is_refused(wishes: dict[str, Any], source: str | None, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        plan(Wishes(**wishes), source)


def test_protocol_bytes_are_those_of_real_messages() -> None:
    private = ClientPrivacy(clip_norm=1.0, noise_multiplier=5.0, max_contributions=9)
    made = scheme("fl-std-dp", clients=40, cohort=40, privacy=private)
    terms = made.terms(50, 1)
    session = made.session("run", 1, 0, tuple(range(40)), terms)
    sent, received = sizes_of_one_sum(session)
    assert protocol_bytes(terms) == (sent, received)


def sizes_of_one_sum(session: Session) -> tuple[int, int]:
    """What the first member sends and receives when everybody stays, by the messages of a whole session."""
    from lowkey.federation import Adverts, Confirmations, Invite, Survivors

    source = OSSecrets().source()
    identities = {u: Identity.fresh(u, source) for u in session.roster}
    keys = {u: identity.verify_key for u, identity in identities.items()}
    vector = np.zeros(session.length, np.uint32)
    states, adverts = dict[int, Any](), dict[int, Advert]()
    for u in session.roster:
        states[u], adverts[u] = secagg.advertise(session, identities[u], source)
    accepted = secagg.accept_adverts(session, adverts, keys)
    shares = dict[int, SealedShares]()
    for u in session.roster:
        states[u], shares[u] = secagg.share(states[u], accepted, keys, identities[u], source)
    deliveries = secagg.deliver(session, accepted, shares, keys)
    tally, masked = secagg.Tally(session, accepted, deliveries), dict[int, Masked]()
    for u in session.roster:
        states[u], words, masked[u] = secagg.mask(states[u], deliveries[u], vector, identities[u])
        tally.add(u, words, masked[u], keys)
    survivors, said = tally.close(), dict[int, Confirmation]()
    for u in session.roster:
        states[u], said[u] = secagg.confirm(states[u], survivors, identities[u])
    confirmations = secagg.accept_confirmations(tally, said, keys)
    revealed = secagg.reveal(states[0], confirmations, keys, identities[0])[1]
    up = [(Advert, adverts[0]), (SealedShares, shares[0]), (Masked, masked[0]), (Confirmation, said[0])]
    down = [
        (Invite, Invite(run=session.run, roster=session.roster)),
        (Adverts, Adverts(adverts=accepted)),
        (type(deliveries[0]), deliveries[0]),
        (Survivors, Survivors(survivors=survivors)),
        (Confirmations, Confirmations(confirmations=confirmations)),
    ]
    sent = sum(len(secagg.encode(kind, message)) for kind, message in [*up, (Revealed, revealed)])
    return sent, sum(len(secagg.encode(kind, message)) for kind, message in down)
