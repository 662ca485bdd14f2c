"""Limits of numbers that nobody published: asked for as private quantiles, over wide public limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lowkey.analytics import RANGE_BINS, Answer, Quantiles, Question
from lowkey.errors import ConfigError
from lowkey.tabular import Limits
from lowkey.tasks.mortality import AdmissionSettings
from lowkey.tasks.mortality.sources import find_source
from lowkey.tasks.task import Study

TAILS = 2.44
"""By how much limits are farther from the median than quartiles are: of a normal distribution, where the 5 % and 95 %
quantiles lie. Those themselves are lost in noise where quartiles can still be seen."""
_QUARTILES = (0.25, 0.5, 0.75)
_WIDE_SYNTHETIC = {"age": (0.0, 120.0), "mrci": (0.0, 200.0)}


def questions(study: Study) -> tuple[Question, ...]:
    """A question about the quartiles of each number."""
    wide = _wide(study.data)
    if not wide:
        raise ConfigError(
            "data.encoding is 'private', but there is no number among data.features; set data.encoding = 'public'"
        )
    return tuple(
        Quantiles(name=f"limits of {name}", column=name, low=low, high=high, bins=RANGE_BINS, at=_QUARTILES)
        for name, (low, high) in wide.items()
    )


def answered(study: Study, answers: Iterable[Answer]) -> AdmissionSettings:
    """The settings with the ranges that were found, or without any where nothing is answered yet."""
    known, found = {answer.question: answer for answer in answers}, []
    for name, (low, high) in _wide(study.data).items() if known else ():
        quartiles = known[f"limits of {name}"].estimates
        lower, middle, upper = (quartiles[f"quantile {level:g}"].value for level in _QUARTILES)
        least = (high - low) / RANGE_BINS / 2
        below, above = (max(TAILS * side, least) for side in (middle - lower, upper - middle))
        found.append((name, max(middle - below, low), min(middle + above, high), middle))
    settings: AdmissionSettings = replace(study.data, ranges=tuple(found))
    return settings


def limits_of(settings: AdmissionSettings) -> Mapping[str, Limits]:
    """The limits that stand in place of public ones."""
    limits = {name: Limits(low, high, fill) for name, low, high, fill in settings.ranges}
    if unknown := limits.keys() - _wide(settings).keys():
        raise ConfigError(
            f"data.ranges has {min(unknown)!r}, which is no number among the features of {settings.name}; leave it out"
        )
    return limits


def require_ranges(settings: AdmissionSettings) -> None:
    """Refuse to make features before private ranges are known."""
    if settings.encoding == "private" and not settings.ranges:
        raise ConfigError(
            "data.encoding is 'private', and no ranges were asked for yet, which only 'lowkey run' does by itself, in "
            "a simulation. Elsewhere ask for quantiles of the numbers beforehand ('lowkey stats'), then set "
            "data.encoding = 'public', and data.ranges to what was found"
        )


def _wide(settings: AdmissionSettings) -> Mapping[str, tuple[float, float]]:
    """Wide limits of the numbers among the features."""
    if settings.name == "synthetic":
        return _WIDE_SYNTHETIC
    source = find_source(settings.name)
    return {name: source.wide[name] for name in source.chosen(settings.features) if name in source.wide}
