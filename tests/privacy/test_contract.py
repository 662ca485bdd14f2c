"""One contract for privacy and for none: client and server make the same calls, whatever is promised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lowkey.errors import CannotContribute, InvalidInput
from lowkey.federation.aggregation import AGGREGATORS
from lowkey.privacy import (
    ClientMechanism,
    ClientPrivacy,
    Event,
    Measurement,
    Noised,
    NoPrivacy,
    Open,
    Privacy,
    Promise,
    make_sampling,
)
from lowkey.rng import OSSecrets
from lowkey.types import FloatArray

MEMBERS, LENGTH, CLIP = 20, 100, 0.5
EVERYBODY = make_sampling("all", population=MEMBERS, cohort=MEMBERS)


def mechanism(**changes: Any) -> ClientMechanism:
    given = {"clip_norm": CLIP, "noise_multiplier": 0.0, "epsilon": 3.0, "bits": 24, "max_contributions": 9}
    return ClientMechanism(settings=ClientPrivacy(**(given | changes)), sampling=EVERYBODY)


OPEN = NoPrivacy(sampling=EVERYBODY, min_survivors=4)
EVERY: dict[str, Privacy] = {
    "open": OPEN,
    "plain": mechanism(),
    "masked": mechanism(aggregation="masked", bits=20),
    "noisy": mechanism(noise_multiplier=2.0),
    "adaptive": mechanism(clip="adaptive"),
}
both = pytest.mark.parametrize("privacy", EVERY.values(), ids=EVERY)


def vectors() -> FloatArray:
    """Of norms below the clip norm, and large in the same few places."""
    drawn = np.random.default_rng(0).normal(size=(MEMBERS, LENGTH))
    drawn[:, :4] += 20
    norms = np.linspace(0.1, 0.9, MEMBERS) * CLIP
    directions: np.ndarray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return (directions * norms[:, None]).astype(np.float32)


def sent(privacy: Privacy, vector: np.ndarray | None) -> Open | Noised:
    measurement = None if vector is None else Measurement(vector)
    return privacy.protect(measurement, length=LENGTH, clip_norm=privacy.clip_norm, source=OSSecrets().source())


@both
def test_what_is_sent_has_the_form_that_was_announced(privacy: Privacy) -> None:
    wire, reply = privacy.wire(LENGTH), sent(privacy, vectors()[0])
    assert reply.value.shape == (wire.length,)
    assert wire.bits == privacy.bits
    assert isinstance(reply, Noised if privacy.private else Open)
    assert reply.value.dtype == (np.uint32 if privacy.private else np.float32)
    if wire.bits is not None:
        assert reply.value.max() < 2**wire.bits
    assert wire.num_bytes == math.ceil(wire.length * (wire.bits or 32) / 8)


@pytest.mark.parametrize("name", ["open", "plain", "masked", "adaptive"])
def test_what_is_sent_adds_up_to_the_mean_without_noise(name: str) -> None:
    """To the fineness of the grid: rounding of 20 members, of which each is off by less than a step."""
    privacy, values = EVERY[name], vectors()
    words = [sent(privacy, value).value for value in values]
    total: Any = np.sum(words, axis=0, dtype=words[0].dtype)
    if privacy.bits is not None:
        total &= np.uint32(2**privacy.bits - 1)
    mean = privacy.read_sum(total, length=LENGTH, clip_norm=privacy.clip_norm, survivors=MEMBERS, weight=float(MEMBERS))
    step = privacy.encoding(LENGTH).step(CLIP) if isinstance(privacy, ClientMechanism) else 1e-7
    np.testing.assert_allclose(mean.value, values.mean(axis=0), atol=step)
    assert np.abs(values.mean(axis=0)).max() > 5 * step  # so that zeros would not do
    assert mean.value.dtype == np.float32
    assert mean.noise == 0.0


@both
def test_vectors_of_another_length_are_refused(privacy: Privacy) -> None:
    with pytest.raises(InvalidInput, match="shape"):
        sent(privacy, np.zeros(LENGTH + 1, np.float32))
    length = privacy.wire(LENGTH).length + 1
    wrong = np.zeros(length, np.uint32) if privacy.private else np.zeros(length, np.float32)
    with pytest.raises(InvalidInput, match="shape"):
        privacy.read_sum(wrong, length=LENGTH, clip_norm=privacy.clip_norm, survivors=MEMBERS, weight=1.0)


@both
def test_who_has_nothing_to_send_is_hidden_or_absent(privacy: Privacy) -> None:
    if privacy.private:
        assert sent(privacy, None).value.shape == (privacy.wire(LENGTH).length,)
    else:
        with pytest.raises(CannotContribute, match="nothing to send"):
            sent(privacy, None)


@both
def test_protecting_changes_no_measurement(privacy: Privacy) -> None:
    vector = vectors()[0]
    sent(privacy, vector)
    np.testing.assert_array_equal(vector, vectors()[0])


@both
def test_events_and_promises_are_made_by_who_keeps_them(privacy: Privacy) -> None:
    event, promise = privacy.event(), privacy.promise()
    if privacy is EVERY["noisy"]:
        assert isinstance(event, Event)
        assert event.noise_multiplier == 2.0
    else:
        assert event is None  # no finite ε is true
    if privacy.private:
        assert isinstance(promise, Promise)
        assert (promise.delta, promise.shares.min_survivors) == (privacy.delta, privacy.min_survivors)
    else:
        assert promise is None


@both
def test_numbers_of_a_scheme_come_from_its_settings(privacy: Privacy) -> None:
    assert privacy.sampling is EVERYBODY
    assert privacy.aggregation in AGGREGATORS
    found = (privacy.clip_norm, privacy.epsilon, privacy.delta, privacy.max_contributions, privacy.min_survivors)
    if privacy.private:
        assert found == (CLIP, 3.0, 1e-5, 9, 18)  # a tenth of 20 may leave
        assert privacy.aggregation == ("masked" if privacy is EVERY["masked"] else "plain")
        assert privacy.bits == (20 if privacy is EVERY["masked"] else 24)
    else:
        assert found == (None, None, 0.0, None, 4)
        assert (privacy.aggregation, privacy.bits) == ("open", None)


def test_the_next_clip_norm_is_the_same_unless_it_adapts() -> None:
    for name in ("plain", "masked", "noisy"):
        words = np.zeros(LENGTH, np.uint32)
        assert EVERY[name].read_sum(words, length=LENGTH, clip_norm=0.3, survivors=18, weight=1.0).clip_norm == 0.3
    nothing = np.zeros(LENGTH, np.float32)
    assert OPEN.read_sum(nothing, length=LENGTH, clip_norm=None, survivors=18, weight=1.0).clip_norm is None


def test_open_means_are_weighted() -> None:
    total = np.full(LENGTH, 6.0, np.float32)
    mean = OPEN.read_sum(total, length=LENGTH, clip_norm=None, survivors=2, weight=1.5)
    np.testing.assert_array_equal(mean.value, np.full(LENGTH, 4.0, np.float32))
    np.testing.assert_array_equal(total, np.full(LENGTH, 6.0, np.float32))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_open_schemes_refuse_updates_that_are_not_finite(bad: float) -> None:
    vector = vectors()[0]
    vector[3] = bad
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        sent(OPEN, vector)


def test_open_means_are_of_finite_vectors_of_float32() -> None:
    with pytest.raises(InvalidInput, match="float32"):
        sent(OPEN, np.zeros(LENGTH))


@pytest.mark.parametrize("least", [0, -1, 21, 2.5, True])
def test_open_rounds_need_some_answers_and_no_more_than_there_are(least: Any) -> None:
    with pytest.raises(InvalidInput, match=r"federation\.min_clients is"):
        NoPrivacy(sampling=EVERYBODY, min_survivors=least)
    assert NoPrivacy(sampling=EVERYBODY, min_survivors=20).min_survivors == 20
