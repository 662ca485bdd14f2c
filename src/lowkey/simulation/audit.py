"""Auditing: attack whole rounds, and compare what the attacks prove with what is promised."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy import ClientPrivacy, OneRunBound, TwoWorldBound, one_run_bound, server_epsilon, two_world_bound
from lowkey.rng import OSSecrets, Secrets, coin_flips
from lowkey.simulation.canaries import CanaryRounds, Defect
from lowkey.simulation.pool import Pool
from lowkey.types import FloatArray

Progress: TypeAlias = Callable[[int, int], None]

_THRESHOLD = 0.5  # in clip norms: half of what the clip leaves of a canary
_BINS = 80


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Histogram of what the attacker sees of canaries, in clip norms: fraction in each bin over its width."""

    edges: tuple[float, ...]
    present: tuple[float, ...]
    absent: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A claim, and what two attacks prove against it.

    Attributes
    ----------
    epsilon_claimed : float
        ε claimed for one round, for a client, or other unit, that is known to take part, at ``delta``.
    two_world, one_run : TwoWorldBound, OneRunBound
        Lower bounds of the true ε.
    planted : Defect or None
        The defect that was planted to test the audit itself.
    members, canaries, coordinates : int
        How many of each an attacked round has.
    rounds, masked_rounds : int
        How many rounds were run, and how many of them under secure aggregation.
    unit : str
        What is protected, in one word.
    seen : Seen
        What the two-world attack has seen.
    """

    epsilon_claimed: float
    two_world: TwoWorldBound
    one_run: OneRunBound
    planted: Defect | None
    noise_multiplier: float
    delta: float
    members: int
    canaries: int
    coordinates: int
    rounds: int
    masked_rounds: int
    seconds: float
    unit: str = "client"
    seen: Seen = field(repr=False)

    @property
    def passed(self) -> bool:
        """No lower bound is above the claim. It says nothing about attacks that were not tried."""
        return max(self.two_world.epsilon, self.one_run.epsilon) <= self.epsilon_claimed

    def to_json(self) -> dict[str, Any]:
        bounds = {"epsilon_lower_bound": self.two_world.epsilon, "epsilon_lower_bound_one_run": self.one_run.epsilon}
        return {"passed": self.passed, **bounds, **asdict(self)}


def run_audit(
    privacy: ClientPrivacy,
    *,
    members: int,
    trials: int = 100_000,
    canaries: int = 40_000,
    guesses: int = 400,
    masked_rounds: int = 2,
    defect: str | None = None,
    secrets: Secrets | None = None,
    workers: int = 0,
    progress: Progress = lambda done, total: None,  # noqa: ARG005
) -> Audit:
    """Attack rounds with these privacy settings.

    Parameters
    ----------
    privacy : ClientPrivacy
        What is promised; resolved. Rosters count as known, so no amplification by sampling is claimed.
    members : int
        Size of the roster.
    trials : int
        Trials of the two-world attack with a canary present, rounded up to whole rounds. Trials without it are free.
    canaries : int
        Canaries of the one-run attack, rounded up to whole rounds. Each is in one round, present by a fair coin.
    guesses : int
        How many of the coins are guessed.
    masked_rounds : int
        How many rounds are summed under secure aggregation, which takes far longer for the same sums.
    defect : str or None
        Defect to plant, to check that the audit finds it: "low-noise" (a tenth too low), "missing-shares" (a tenth of
        the members gone with their noise) or "no-clipping".
    secrets : Secrets or None
        Secrets of all participants; by default those of the operating system.
    workers : int
        Number of processes; 0 runs all rounds in this process.
    progress : Progress
        Called with the number of rounds done and the number of all rounds.

    Guarantees
    ----------
    Each bound is above the true ε with a probability of at most its significance, 5 %. An audit that is passed proves
    nothing.
    """
    started, secrets = time.perf_counter(), secrets or OSSecrets()
    if defect is not None:
        checks.one_of("the planted defect", defect, get_args(Defect))
    planted = cast("Defect | None", defect)
    setting = CanaryRounds.of(privacy, members, planted, secrets)  # refuses settings with open choices
    noise = float(privacy.noise_multiplier)
    if noise == 0:
        raise InvalidInput("without noise nothing is promised, so there is nothing to audit; choose a private scheme")
    checks.at_least("trials", trials, 1)
    checks.at_least("masked rounds", masked_rounds, 0)
    checks.at_least("guesses", guesses, 1)
    checks.at_least("canaries", canaries, guesses)
    size = setting.canaries
    attacked, gambled = (-(-count // size) for count in (trials, canaries))
    coins = np.zeros((gambled, size), np.bool_)
    coins.flat[coin_flips(secrets.source("audit"), coins.size, 0.5)] = True
    presence = np.concatenate([np.ones((attacked, size), np.bool_), coins])

    views = np.empty((len(presence), setting.coordinates), np.float32)
    run_one = partial(_run_one, setting, masked_rounds)
    with closing(_each(run_one, enumerate(presence), workers)) as shown:
        for number, view in enumerate(shown):
            views[number] = view
            progress(number + 1, len(views))

    present, absent = views[:attacked, :size], views[:attacked, size:]
    return Audit(
        epsilon_claimed=server_epsilon(noise, 1, privacy.delta),
        two_world=two_world_bound(
            present=present.size,
            absent=absent.size,
            missed=int(np.sum(present <= _THRESHOLD)),
            false_alarms=int(np.sum(absent > _THRESHOLD)),
            delta=privacy.delta,
        ),
        one_run=one_run_bound(
            canaries=coins.size,
            guesses=guesses,
            correct=_correct(views[attacked:, :size] - _THRESHOLD, coins, guesses),
            delta=privacy.delta,
        ),
        planted=planted,
        noise_multiplier=noise,
        delta=privacy.delta,
        members=setting.members,
        canaries=size,
        coordinates=setting.coordinates,
        rounds=len(views),
        masked_rounds=min(masked_rounds, len(views)),
        seconds=round(time.perf_counter() - started, 1),
        unit=privacy.protected,
        seen=_seen(present, absent),
    )


def _correct(scores: FloatArray, coins: NDArray[np.bool_], guesses: int) -> int:
    """Right guesses of the coins whose scores are farthest from 0."""
    surest = np.argsort(-np.abs(scores), axis=None)[:guesses]
    return int(np.sum((scores.flat[surest] > 0) == coins.flat[surest]))


def _seen(present: FloatArray, absent: FloatArray) -> Seen:
    edges = np.linspace(absent.min(), present.max(), _BINS + 1)
    heights = (np.histogram(views, edges)[0] / views.size / np.diff(edges) for views in (present, absent))
    shown = [tuple(numbers.tolist()) for numbers in (edges, *heights)]
    return Seen(edges=shown[0], present=shown[1], absent=shown[2])


def _run_one(setting: CanaryRounds, masked_rounds: int, numbered: tuple[int, NDArray[np.bool_]]) -> FloatArray:
    number, present = numbered
    return setting.run(number, present, masked=number < masked_rounds)


def _each(
    run_one: Callable[[tuple[int, NDArray[np.bool_]]], FloatArray],
    rounds: Iterable[tuple[int, NDArray[np.bool_]]],
    workers: int,
) -> Generator[FloatArray, None, None]:
    """What every round shows, in order, computed by this many processes."""
    if workers == 0:
        yield from map(run_one, rounds)
        return
    with Pool([run_one] * workers) as pool:
        yield from pool.map(rounds)
