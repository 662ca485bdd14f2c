"""Plans: candidates side by side, whose figures are those of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowkey import secagg
from lowkey.analytics import ScoreQuestion, error_of, well_binned
from lowkey.errors import InvalidInput
from lowkey.experiments import Plan, Wishes, load_config, plan
from lowkey.federation import protocol_bytes, scheme, total_noise
from lowkey.privacy import ClientMechanism, ClientPrivacy, make_sampling
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
    assert "A network of 1663370 parameters does not keep to the limit: 1.77 Mbit of vectors, above" in told
    assert "cannot be learned" not in told
    assert "even at ratio 0.01. What can be run: head, 400 features." in told


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


def test_few_clients_with_many_examples_are_told_of_the_other_unit() -> None:
    """What counts is how many there are of whatever is hidden."""
    few = Wishes(clients=20, features=400, epsilon=1.0)
    (enough,) = (int(word) for word in plan(few).verdict[-1].split() if word.isdigit() and word != "400")
    advice = {n: plan(replace(few, examples=n)).verdict[-1] for n in (enough // 20 - 1, enough // 20 + 1)}
    least, most = advice.values()
    assert "person" not in least
    assert f"There are {20 * (enough // 20 + 1)} examples" in most
    assert "privacy.unit = 'person' makes them count" in most


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
    links = secagg.Links(session, secagg.accept_adverts(session, adverts, keys))
    shares = dict[int, SealedShares]()
    for u in session.roster:
        states[u], shares[u] = secagg.share(
            states[u], links.advertisers, links.shown_to(u), keys, identities[u], source
        )
    deliveries = secagg.deliver(links, shares, keys)
    tally, masked = secagg.Tally(links, deliveries), dict[int, Masked]()
    for u in session.roster:
        states[u], words, masked[u] = secagg.mask(states[u], deliveries[u], vector, identities[u])
        tally.add(u, words, masked[u], keys)
    survivors, said = tally.close(), dict[int, Confirmation]()
    for u in session.roster:
        states[u], said[u] = secagg.confirm(states[u], survivors, identities[u])
    confirmations = secagg.accept_confirmations(tally, said, keys)
    revealed = secagg.reveal(states[0], confirmations, keys, identities[0], source, tally.vouchers_for(0))[1]
    up = [(Advert, adverts[0]), (SealedShares, shares[0]), (Masked, masked[0]), (Confirmation, said[0])]
    down = [
        (Invite, Invite(run=session.run, roster=session.roster)),
        (Adverts, Adverts(advertisers=links.advertisers, adverts=links.shown_to(0))),
        (type(deliveries[0]), deliveries[0]),
        (Survivors, Survivors(survivors=survivors)),
        (Confirmations, Confirmations(confirmations=confirmations, vouchers=tally.vouchers_for(0))),
    ]
    sent = sum(len(secagg.encode(kind, message)) for kind, message in [*up, (Revealed, revealed)])
    return sent, sum(len(secagg.encode(kind, message)) for kind, message in down)


def test_what_clients_can_be_asked_is_told() -> None:
    """Of many clients, ranges; of few, none. A tighter error, and hiding clients and not persons, takes more ε."""
    many = plan(Wishes(clients=5011, features=90, epsilon=1.0, examples=250)).askable
    few = plan(Wishes(clients=60, features=30, epsilon=1.0, examples=250)).askable
    tight = plan(Wishes(clients=5011, features=90, epsilon=1.0, examples=250, auroc_error=0.01)).askable
    assert many.range_error == pytest.approx(few.range_error * 60 / 5011, rel=0.05)
    assert "they can be asked for" in many.sentences[0]
    assert "take public limits" in few.sentences[0]
    assert many.auroc_error is not None
    assert many.epsilon_clients is not None
    assert many.epsilon_persons is not None
    assert few.epsilon_clients is not None
    assert tight.epsilon_clients is not None
    assert many.epsilon_persons < many.epsilon_clients < min(tight.epsilon_clients, few.epsilon_clients)
    unknown = plan(Wishes(clients=60, features=30, epsilon=1.0)).askable
    assert unknown.auroc_error is unknown.epsilon_clients is None
    assert "--examples" in unknown.sentences[1]


def test_the_least_epsilon_gives_the_wanted_error() -> None:
    """An evaluation that has this ε for itself, with a spare attempt, has the noise at which the error is as wanted."""
    asked = plan(Wishes(clients=410, features=90, epsilon=1.0, examples=200, auroc_error=0.05)).askable
    assert asked.epsilon_clients is not None
    config = load_config(
        "hospital/synthetic/private",
        ["schedule={rounds=0, calibration=0}", 'evaluation.where="clients"', "federation={scheme='fl-std-dp', "
         "clients=410, cohort=410}", f"privacy.epsilon={asked.epsilon_clients}"],
    )  # fmt: skip
    assert config.privacy is not None
    everybody = make_sampling("all", population=410, cohort=410)
    noise = total_noise(ClientMechanism(settings=config.privacy.of_question(), sampling=everybody))
    question = ScoreQuestion(rows=40, prevalence=0.05)
    public = {"units": 410, "positives": 410 * 40 * 0.05, "noise": noise}
    assert error_of(well_binned(question, **public), **public) == pytest.approx(0.05, rel=0.02)  # type: ignore[arg-type]


def test_an_error_that_no_epsilon_gives_is_told() -> None:
    asked = plan(Wishes(clients=60, features=30, epsilon=1.0, examples=50, auroc_error=1e-6)).askable
    assert asked.epsilon_clients is None
    assert "no ε is enough for a client" in asked.sentences[1]
