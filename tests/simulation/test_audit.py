"""The audit: true claims pass, planted defects are found, through the same rounds as any run.

Secrets are replayed, so that these tests do not fail by chance. Stated rates of false alarms and of overlooked defects
are those of other seeds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowkey.codec import ChunkedDCT
from lowkey.errors import InvalidInput
from lowkey.federation import scheme
from lowkey.privacy import ClientMechanism, ClientPrivacy, Encoding, server_epsilon
from lowkey.privacy.auditing import one_run_bound, two_world_bound
from lowkey.rng import ReplaySecrets, coin_flips
from lowkey.simulation import run_audit
from lowkey.simulation.audit import _correct
from lowkey.simulation.canaries import CanaryRounds, Defect

SECRETS = ReplaySecrets(31)
CLAIMED = server_epsilon(1.54, 1, 1e-5)


QUIET = (
    ClientPrivacy(  # with this much noise, few trials tell much; with 24 bits, rounding hides less than 1 % of a canary
        clip_norm=0.47, noise_multiplier=0.4, delta=1e-5, bits=24, dropouts=0.0, colluders=0.0
    )
)
LOSSY = replace(QUIET, dropouts=0.1, colluders=0.1)


def summed(encoding: Encoding, canaries: np.ndarray, members: int) -> np.ndarray:
    """A sum of so many members' noise with a canary at every marked coordinate, in clip norms.

    One vector holds all trials: noise is independent from coordinate to coordinate.
    """
    total = np.where(canaries, round(encoding.norm), 0).astype(np.uint32)
    for member in range(members):
        total += encoding.add_noise(encoding.zeros(), SECRETS.source("noise", member)).value
    return encoding.decode(total, 1.0)


@pytest.mark.parametrize(
    ("noise", "members", "low", "high"),
    [
        (1.0, 100, 2.30, CLAIMED),  # above the claim by chance: 0.02 %
        (0.9, 100, CLAIMED, 4.0),
        (1.0, 90, CLAIMED, 4.0),  # noise for 100 members, 90 of them there; overlooked by chance: 0.5 %
    ],
    ids=["correct", "noise a tenth too low", "a tenth of the shares missing"],
)
def test_two_worlds_of_100_000_trials(noise: float, members: int, low: float, high: float) -> None:
    encoding = Encoding(length=200_000, members=100, honest=100, noise_multiplier=noise * 1.54)
    present = np.arange(encoding.length) < 100_000
    views = summed(encoding, present, members)
    guessed = views > 0.5
    missed, false_alarms = int(np.sum(~guessed[present])), int(np.sum(guessed[~present]))
    bound = two_world_bound(present=100_000, absent=100_000, missed=missed, false_alarms=false_alarms, delta=1e-5)
    assert low < bound.epsilon < high


@pytest.mark.parametrize(
    ("noise", "low", "high"), [(1.0, 1.2, CLAIMED), (0.5, CLAIMED, 4.0)], ids=["correct", "half the noise"]
)
def test_one_run_of_40_000_canaries(noise: float, low: float, high: float) -> None:
    encoding = Encoding(length=40_000, members=100, honest=100, noise_multiplier=noise * 1.54)
    coins = np.zeros(encoding.length, np.bool_)
    coins[coin_flips(SECRETS.source("coins"), coins.size, 0.5)] = True
    correct = _correct(summed(encoding, coins, 100) - np.float32(0.5), coins, 400)
    assert low < one_run_bound(canaries=40_000, guesses=400, correct=correct, delta=1e-5).epsilon < high


@pytest.mark.parametrize(
    ("defect", "passes"),
    [
        (None, True),  # refuted by chance: 0.1 %
        ("low-noise", False),
        ("missing-shares", False),  # overlooked by chance: 0.01 %
        ("no-clipping", False),
    ],
)
def test_planted_defects_are_found_through_whole_rounds(defect: Defect | None, passes: bool) -> None:
    trials = 800 if defect == "no-clipping" else 8000
    found = run_audit(
        QUIET, members=40, trials=trials, canaries=800, guesses=40, masked_rounds=0, defect=defect, secrets=SECRETS
    )
    assert found.passed == passes
    assert found.two_world.present >= trials
    assert found.two_world.epsilon > 0.9 * found.epsilon_claimed
    assert 0.5 < found.one_run.epsilon <= found.epsilon_claimed
    assert found.to_json()["epsilon_lower_bound"] == found.two_world.epsilon


def test_the_worst_roster_leaves_the_noise_that_is_promised_and_no_more() -> None:
    """4,000 coordinates tell a standard deviation to 1.1 %; the test leaves 5 % (false alarms: one in 10⁵)."""
    rounds = CanaryRounds.of(LOSSY, 40, None, SECRETS)
    assert (rounds.members, rounds.canaries) == (40, 32)
    view = rounds.run(0, np.zeros(32, np.bool_), masked=False)
    encoding = rounds.privacy.encoding(view.size)
    promised = float(LOSSY.noise_multiplier) * encoding.sensitivity / encoding.norm
    assert np.std(view) == pytest.approx(promised, rel=0.05)


@pytest.mark.parametrize("defect", [None, "low-noise", "missing-shares"])
def test_masked_rounds_show_the_same(defect: Defect | None) -> None:
    rounds = CanaryRounds.of(LOSSY, 12, defect, SECRETS)
    present = np.arange(rounds.canaries) % 2 == 0
    plain, masked = (rounds.run(5, present, masked=masked) for masked in (False, True))
    np.testing.assert_array_equal(plain, masked)
    assert plain[: rounds.canaries][present].mean() > plain[: rounds.canaries][~present].mean()


def test_canaries_are_clipped_unless_that_is_the_defect() -> None:
    cases: list[tuple[Defect | None, float]] = [(None, 1.0), ("no-clipping", 10.0)]
    for defect, size in cases:
        rounds = CanaryRounds.of(replace(QUIET, noise_multiplier=0.1), 20, defect, SECRETS)
        view = rounds.run(0, np.ones(20, np.bool_), masked=False)
        np.testing.assert_allclose(view[:20], size, atol=0.6)
        np.testing.assert_allclose(view[20:], 0.0, atol=0.6)


def test_workers_change_nothing() -> None:
    def seen(workers: int) -> object:
        found = run_audit(QUIET, members=10, trials=40, canaries=20, guesses=2, secrets=SECRETS, workers=workers)
        return replace(found, seconds=0.0)

    assert seen(2) == seen(0)


@pytest.mark.parametrize(
    ("privacy", "changes", "named"),
    [
        (replace(QUIET, noise_multiplier=0.0), {}, "nothing to audit"),
        (ClientPrivacy(clip_norm=1.0, epsilon=1.0), {}, "call ClientPrivacy.resolve first"),
        (QUIET, {"trials": 0}, "trials is 0"),
        (QUIET, {"trials": 2.5}, "trials is 2.5"),
        (QUIET, {"masked_rounds": -1}, "masked rounds is -1"),
        (QUIET, {"guesses": 0}, "guesses is 0"),
        (QUIET, {"canaries": 100, "guesses": 200}, "canaries is 100"),
    ],
)
def test_impossible_audits(privacy: ClientPrivacy, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        run_audit(privacy, members=10, **changes)


def test_rosters_of_the_scheme_are_taken_as_known() -> None:
    settings = ClientPrivacy(clip_norm=0.47, noise_multiplier=1.54)
    made = scheme("fl-cs-dp", clients=6000, cohort=100, codec=ChunkedDCT(ratio=0.05), privacy=settings)
    assert isinstance(made.privacy, ClientMechanism)
    rounds = CanaryRounds.of(made.privacy.settings, made.privacy.sampling.roster_size, None, SECRETS)
    assert rounds.privacy.sampling.mode == "all"
    assert rounds.members == made.privacy.sampling.roster_size == 160
    assert (rounds.privacy.settings.clip_norm, rounds.privacy.settings.noise_multiplier) == (0.47, 1.54)
