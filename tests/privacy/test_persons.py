"""Privacy of each person at the clients: what one of them can change, what it costs, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowkey.errors import InvalidInput, PolicyRefused, RoundFailed
from lowkey.federation import Scheme, scheme
from lowkey.privacy import (
    ClientMechanism,
    ClientPrivacy,
    Measurement,
    Policy,
    claimed_epsilon,
    guarantee_lines,
    make_sampling,
    released_epsilon,
    server_epsilon,
)
from lowkey.privacy.encoding import centred, exact_square
from lowkey.rng import OSSecrets, PublicStream

LENGTH, HOSPITALS, PERSONS = 60, 10, 5000
SETTINGS = ClientPrivacy(unit="person", persons=PERSONS, clip_norm=2.0, noise_multiplier=3.0, max_contributions=9)


def mechanism(**changes: Any) -> ClientMechanism:
    settings = replace(SETTINGS, **changes).resolve(clients=HOSPITALS, cohort=HOSPITALS)
    return ClientMechanism(settings=settings, sampling=settings.sampling_of(clients=HOSPITALS, cohort=HOSPITALS))


def made(**changes: Any) -> Scheme:
    privacy = replace(SETTINGS, **changes)
    return scheme("fl-std-dp", clients=HOSPITALS, cohort=HOSPITALS, privacy=privacy)


def people(count: int, size: float, seed: int = 0) -> list[Measurement]:
    rows = np.random.default_rng(seed).standard_normal((count, LENGTH)).astype(np.float32)
    return [Measurement(row * np.float32(size / np.linalg.norm(row))) for row in rows]


def summed(record: ClientMechanism, persons: list[Measurement]) -> np.ndarray[Any, Any]:
    source = PublicStream(5, "coins")  # the same coins for everybody who comes before a difference
    total = record.sum_of_persons(persons, length=LENGTH, clip_norm=2.0, source=source)
    assert total.l2_bound == record.encoding(LENGTH).sensitivity
    return total.value.astype(np.int64)


@pytest.mark.parametrize("size", [1e-3, 1.9, 2.0, 2.1, 1e6, 1e30])
@pytest.mark.parametrize("clip", ["fixed", "normalise"])
def test_one_person_changes_the_sum_by_the_sensitivity_at_most(size: float, clip: str) -> None:
    """In exact integers, whether the person is present, or zeros in its place, or nobody."""
    record, others = mechanism(clip=clip), people(20, 3.0)
    (person,) = people(1, size, seed=1)
    nobody = Measurement(np.zeros(LENGTH, np.float32))
    with_it, without = summed(record, [*others, person]), summed(record, others)
    np.testing.assert_array_equal(summed(record, [*others, nobody]), without)
    moved = exact_square(with_it - without)
    assert moved <= record.encoding(LENGTH).sensitivity ** 2
    if size >= 2.0 or clip == "normalise":  # so that the bound is about the right length
        assert moved > 0.8 * record.encoding(LENGTH).norm ** 2


def test_persons_beyond_the_public_number_change_nothing_about_the_bound() -> None:
    few, many = mechanism(persons=3), people(400, 1e3)
    assert few.encoding(LENGTH).sensitivity == mechanism().encoding(LENGTH).sensitivity
    moved = summed(few, many) - summed(few, many[:-1])
    assert exact_square(moved) <= few.encoding(LENGTH).sensitivity ** 2


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_person_without_a_finite_update_counts_as_zeros_and_changes_no_other(strange: float) -> None:
    record, others = mechanism(), people(20, 1.0)
    bad = Measurement(np.full(LENGTH, strange, np.float32))
    np.testing.assert_array_equal(summed(record, [*others, bad]), summed(record, others))
    assert np.any(summed(record, others))


def test_the_whole_client_is_never_bounded_in_place_of_its_persons() -> None:
    with pytest.raises(InvalidInput, match="give the sum of its persons"):
        mechanism().protect(people(1, 1.0)[0], length=LENGTH, clip_norm=2.0, source=OSSecrets().source())


def test_the_mean_is_over_the_public_number_of_persons() -> None:
    """Ten hospitals of 40 equal persons and noise that is too small to see: the sum over 5,000, not over 400 or 10."""
    record, source = mechanism(noise_multiplier=1e-3), OSSecrets().source()
    persons, total = people(1, 1.0) * 40, np.zeros(LENGTH, np.uint32)
    for _ in range(HOSPITALS):
        bounded = record.sum_of_persons(persons, length=LENGTH, clip_norm=2.0, source=source)
        total += record.protect(bounded, length=LENGTH, clip_norm=2.0, source=source).value
    total &= np.uint32(2**28 - 1)
    mean = record.read_sum(total, length=LENGTH, clip_norm=2.0, survivors=HOSPITALS, weight=math.nan)
    np.testing.assert_allclose(mean.value, persons[0].value * np.float32(400 / PERSONS), rtol=0.02, atol=2e-4)
    few = mechanism(noise_multiplier=1e-3, persons=20)
    with pytest.raises(RoundFailed, match="larger than honest members can make it"):
        few.read_sum(total, length=LENGTH, clip_norm=2.0, survivors=HOSPITALS, weight=math.nan)


def test_the_wire_has_room_for_all_persons() -> None:
    """The largest coordinates of all persons together do not wrap; where bits leave no room, that is said."""
    record = mechanism()
    encoding = record.encoding(LENGTH)
    assert encoding.bits == 28
    assert encoding.largest * PERSONS + 9.5 * encoding.total_std(HOSPITALS) < 2**27
    same = Measurement(np.eye(1, LENGTH, dtype=np.float32)[0] * np.float32(1e3))
    total = record.sum_of_persons([same] * PERSONS, length=LENGTH, clip_norm=2.0, source=OSSecrets().source())
    np.testing.assert_array_equal(centred(total.value.view(np.uint32), 28), total.value)
    with pytest.raises(InvalidInput, match=r"16 bits leave room .* 10 members with 5000 persons.*raise privacy.bits"):
        mechanism(bits=16).encoding(LENGTH)
    with pytest.raises(InvalidInput, match=r"lower the persons \(privacy\.persons\)"):
        mechanism(persons=90_000_000, delta=1e-9).encoding(LENGTH)


@pytest.mark.parametrize(("row", "unit"), [(None, "person"), ("admission", "admission")])
def test_price_promise_and_words_speak_of_persons(row: str | None, unit: str) -> None:
    record = mechanism(row=row)
    event, promise = record.event(), record.promise()
    assert event is not None
    assert (event.unit, event.mode, promise.unit, promise.persons) == (unit, "all", unit, PERSONS)
    assert record.shares[:2] == (9, 8)
    ten = replace(event, count=10)
    released, server = released_epsilon([ten], 1e-5), server_epsilon(3.0, 10, 1e-5)
    assert released.pld == pytest.approx(server, rel=1e-3)  # everybody in every round: nothing is hidden by sampling
    text = "\n".join(
        guarantee_lines(ten, released=released, server=server, participations=10, delta=1e-5, shares=record.shares)
    )
    assert f"Unit: one {unit} at one client" in text
    assert f"one {unit}'s contribution present or zero" in text
    assert f"Not covered: a client as a whole: what all its {unit}s have in common" in text
    assert "one client with all its data" not in text


def test_noise_follows_from_the_target_as_for_clients() -> None:
    target = ClientPrivacy(clip_norm=1.0, epsilon=1.0, rounds=50)
    of_clients = replace(target, delta=1e-5).resolve(clients=HOSPITALS, cohort=HOSPITALS)
    of_persons = replace(target, unit="person", persons=PERSONS).resolve(clients=HOSPITALS, cohort=HOSPITALS)
    assert of_persons.noise_multiplier == of_clients.noise_multiplier
    assert (of_persons.sampling, of_persons.bits, of_persons.max_contributions) == ("all", 28, 53)


def test_units_are_not_added_up() -> None:
    everybody = make_sampling("all", population=10, cohort=10).event(5.0)
    with pytest.raises(InvalidInput, match=r"different units \(client, person\) cannot be added up"):
        claimed_epsilon([everybody, replace(everybody, unit="person")], 1e-5)


def test_members_must_agree_on_the_unit_and_the_number_of_persons() -> None:
    terms = [
        made(**changes).terms(LENGTH, 1)
        for changes in (
            {},
            {"row": "admission"},
            {"persons": 5001},
            {"unit": "client", "persons": None, "bits": 28},
        )
    ]
    assert len({each.digest() for each in terms}) == 4
    assert [each.unit for each in terms] == ["person", "admission", "person", "client"]


def test_a_policy_takes_only_the_unit_that_it_is_about(tmp_path: Any) -> None:
    """ε = 1 for a person is no promise to a hospital, and ε = 1 for a hospital none of the same size to a person."""
    policy = Policy(
        min_noise_multiplier=1.0, min_roster=10, min_honest=8, min_tolerated_colluders=1, max_participations=9,
        max_epsilon=9.0, delta=1e-5,
    )  # fmt: skip
    of_persons, of_clients = made().terms(LENGTH, 1), made(unit="client", persons=None).terms(LENGTH, 1)
    policy.check(of_clients)
    with pytest.raises(PolicyRefused, match=r"the terms protect a person; .* unless a client is protected"):
        policy.check(of_persons)
    other = replace(policy, unit="person")
    path = tmp_path / "policy.toml"
    path.write_text(other.to_toml())
    assert Policy.from_toml(path) == other
    other.check(of_persons)
    with pytest.raises(PolicyRefused, match="the terms protect a client"):
        other.check(of_clients)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"persons": None}, r"privacy\.persons is None, that is missing"),
        ({"persons": 0}, r"privacy\.persons is 0"),
        ({"row": "two words"}, r"privacy\.row is 'two words'; it must be one word"),
        ({"row": "client"}, r"privacy\.row is 'client'"),
        ({"clip": "adaptive"}, "votes are counted by client"),
        ({"proofs": True}, "the sum of its persons has no such bound"),
        ({"centring": 0.1}, "use a model without a centre"),
        ({"sampling": "poisson_padded"}, "every client takes part in every round; set federation"),
        ({"delta": 1 / PERSONS}, "with 5000 persons it must be below 0.0002"),
    ],
)
def test_what_is_not_for_persons_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        mechanism(**changes)


def test_a_part_of_the_clients_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"every client takes part in every round; set federation\.cohort to "):
        scheme("fl-std-dp", clients=10, cohort=5, privacy=SETTINGS)
