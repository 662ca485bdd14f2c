"""How good a model is, from its scores on the clients' own test rows: one sum of two histograms, by label.

Bins are equally wide in z = 1/(1 + exp(middle − score)), the risk that the score would mean if both classes were as
frequent. Few bins are then empty, and noise in the AUROC is small: it is the noise of a bin times √Σ(Fᵢ − AUROC)², with
Fᵢ the share of negatives below bin i, over the number of positives. Bins are few, so what happens inside one is not
neglected: scores are taken to be normal there, with mean and deviation that fit the histogram, and the risk to rise
with them as the fitted calibration line says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from lowkey import checks
from lowkey.analytics.question import (
    Answer,
    Columns,
    Estimate,
    Starts,
    Total,
    Vectors,
    column_of,
    numbers_of,
    per_unit,
    within_one,
)
from lowkey.errors import CannotContribute, InvalidInput

_CUT = 0.2  # length of the part of a vector that tells how much of it was cut
_REPLICATES = 400
_POINTS = 8  # scores that stand for a bin
_ODDS, _STEEPNESS, _MIX = 0.5, 0.1, 0.12  # what was cut may differ in log-odds, slope, and log-density per logit
_SHAPE = 0.3  # deviation of how wide scores lie in a bin, relative to what was fitted
_UNSURE = 0.3  # of what is known about the inside of bins, the part that may be wrong
_RARE = 0.005  # share of all rows below which a bin's side is taken for empty
_VAGUE = 0.4  # width of an interval of the AUROC that says next to nothing
_USUAL = 1.2  # distance of both classes in standard deviations that planning assumes: an AUROC of 0.80

_HIST = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ScoreQuestion:
    """AUROC, sensitivity, specificity, calibration and Brier score of the model, for everybody and for groups.

    A unit with several rows sends how many of them lie in each bin, positives and negatives each times a public number,
    scaled to norm 1 as a whole if that is longer; large units then count less than their rows.

    Parameters
    ----------
    name : str
        What the answer is called.
    bins : int
        Bins of each histogram; :func:`well_binned` finds a good number.
    rows : float
        About how many test rows a unit has: a public guess. Below 2, a unit has one row as a rule.
    prevalence : float
        About how often the event happens: a public guess.
    middle : float or None
        The score that is neither high nor low. None takes the logit of ``prevalence``, which fits the logits of risks;
        0 fits a model that learned from balanced classes.
    threshold : float or None
        The score above which the model raises an alarm; None takes ``middle``.
    groups : tuple of str
        Groups to compare, each as "column=value". All values of a column together cost as much accuracy as the whole.
    share : float
        About what part of the units has test rows: a public guess, by which it is told how much of a vector was cut.
    least : int
        Rows that a group must have, with a certainty of 97.5 % in view of the noise, to be shown.
    """

    asks_of: ClassVar[Literal["table", "scores"]] = "scores"

    name: str = "scores"
    bins: int = 10
    rows: float = 1.0
    prevalence: float = 0.05
    middle: float | None = None
    threshold: float | None = None
    groups: tuple[str, ...] = ()
    share: float = 1.0
    least: int = 100

    def __post_init__(self) -> None:
        checks.at_least("bins", self.bins, 2)
        if not self.rows >= 1 or math.isinf(self.rows):
            raise InvalidInput(f"rows is {self.rows}; it must be a number of at least 1")
        checks.fraction("prevalence", self.prevalence, include_one=False)
        for name, value in (("middle", self.middle), ("threshold", self.threshold)):
            if value is not None and not math.isfinite(value):
                raise InvalidInput(f"{name} is {value}; it must be a number")
        checks.fraction("share", self.share)
        checks.at_least("least", self.least, 1)
        for group in self.groups:
            if not all(group.partition("=")) or group.partition("=")[0] in ("score", "label"):
                raise InvalidInput(f"a group is {group!r}; write it as column=value, such as 'sex=female'")
        if len(set(self.groups)) < len(self.groups):
            raise InvalidInput(f"groups are {', '.join(self.groups)}; name each once")

    @property
    def columns(self) -> tuple[str, ...]:
        return ("score", "label", *dict.fromkeys(group.partition("=")[0] for group in self.groups))

    @property
    def length(self) -> int:
        return 2 * self.bins * (1 + len(self.groups)) + 1

    @property
    def centre(self) -> float:
        """The score in the middle of all bins."""
        return float(logit(self.prevalence)) if self.middle is None else self.middle

    @property
    def scales(self) -> tuple[float, float]:
        """What a negative and a positive row count in a vector.

        A unit has k = rows·prevalence positives, in bins of which about 4 matter: their histogram has a norm of about
        √(k + k²/4), and the noise matters as 1/k. So do negatives. What both histograms together may have, 1, is
        divided such that the noise in the AUROC is least.
        """
        room = math.sqrt((1 - _CUT**2) / (len(self.columns) - 1))
        if self.rows < 2:
            return room, room
        counts = np.array([1 - self.prevalence, self.prevalence]) * self.rows
        norms = np.sqrt(counts + counts**2 / 4)
        shares = norms / counts
        negative, positive = np.minimum(room, room * np.sqrt(shares / shares.sum()) / norms)
        return float(negative), float(positive)

    def vectors(self, rows: Columns, starts: Starts) -> Vectors:
        scores, labels = numbers_of(rows, "score"), numbers_of(rows, "label")
        if not np.isfinite(scores).all():
            raise CannotContribute("its scores hold NaN or infinite numbers; check the model and the test rows")
        if not np.isin(labels, (0, 1)).all():
            raise CannotContribute("its labels must be 0 or 1; check the column of outcomes")
        place = np.minimum((expit(scores - self.centre) * self.bins).astype(np.intp), self.bins - 1)
        place += np.where(labels > 0, self.bins, 0)
        weight = np.where(labels > 0, *reversed(self.scales))
        table = np.zeros((len(scores), self.length))
        everybody = np.arange(len(scores))
        table[everybody, place] = weight
        for number, group in enumerate(self.groups, start=1):
            column, _, value = group.partition("=")
            texts = column_of(rows, column)
            if texts.dtype.kind not in "OU":
                raise CannotContribute(f"its column {column!r} is not of texts; write bands or names for groups")
            inside = everybody[texts == value]
            table[inside, 2 * self.bins * number + place[inside]] = weight[inside]
        sums = per_unit(table, starts)
        bound = math.sqrt(1 - _CUT**2)
        kept = within_one(sums / bound) * bound
        kept[:, -1] = _CUT * (1 - 1 / np.maximum(np.linalg.norm(sums, axis=1) / bound, 1))
        return within_one(kept)  # rounding may leave it longer by the last bit

    def read(self, total: Total) -> Answer:
        if total.value.shape != (self.length,):
            raise InvalidInput(f"the sum has shape {total.value.shape}; this question has {self.length} numbers")
        answering = max(total.units * self.share, 1.0)
        cut = (max(0.0, total.value[-1]) + total.noise) / (_CUT * answering) if total.units else 0.0
        found = self._measured(total, 0, cut)
        estimates = {name: _estimate(values) for name, values in found.items() if values.ndim == 1}
        estimates["auroc"] = _possible(estimates["auroc"])
        notes = [_MEANING]
        if estimates["positives"].low <= 0 or estimates["rows"].low <= estimates["positives"].high:
            notes.append("There are too few positives or negatives, in view of the noise, to judge the model.")
            estimates = {name: estimates[name] for name in ("rows", "positives")} | {"auroc": Estimate(0.5, 0.0, 1.0)}
        elif is_vague(estimates["auroc"]):
            notes.append(
                "The AUROC is hardly known: there is much noise, or nearly all scores lie in one or two bins, as those "
                "of a model that has learned little do, or of one whose scores are far from the middle of the bins."
            )
        if (share := max(0.0, total.value[-1]) / (_CUT * answering)) > 0.01:
            notes.append(
                f"{share:.0%} of what a {total.unit} had to send was cut, on average, so that large ones count less "
                "than their rows: counts are too small, and intervals allow for other odds and slopes in what was cut."
            )
        tables = {"thresholds": self._thresholds(found), "calibration": self._calibration(found)}
        if self.groups:
            tables["groups"] = self._compared(total, cut)
        return Answer(question=self.name, estimates=estimates, tables=tables, notes=tuple(notes))

    @property
    def _edges(self) -> _HIST:
        """Scores, from ``centre``, between which bins lie."""
        edges: _HIST = logit(np.arange(self.bins + 1) / self.bins)
        return edges

    def _measured(self, total: Total, block: int, cut: float) -> dict[str, _HIST]:
        """Every measure by name, first as the sum says, then as it might have been: noise, sampling, bins, cuts."""
        size = self.bins
        negative, positive = (
            total.value[(2 * block + part) * size : (2 * block + part + 1) * size] / scale
            for part, scale in enumerate(self.scales)
        )
        rng = np.random.default_rng(0)
        counts = np.stack([negative, positive])
        noise = total.noise / np.array(self.scales)[:, None]
        draws = rng.standard_normal((_REPLICATES + 1, 2, size))
        draws[0] = 0
        counts = counts + draws * np.sqrt(noise**2 + np.maximum(counts, 0))
        odds, steepness, mix, shape, rise = rng.standard_normal((5, _REPLICATES + 1, 1)) * (draws[:, 0, :1] != 0)
        places = np.clip((self._edges[1:] + self._edges[:-1]) / 2, -3, 3)
        both = math.sqrt(cut) * _MIX * mix * places
        more = math.sqrt(cut) * (_ODDS * odds + _STEEPNESS * steepness * places)
        negative, positive = counts[:, 0] * np.exp(both), counts[:, 1] * np.exp(both + more)
        return self._measures(negative, positive, np.exp(_SHAPE * shape), rise)

    def _measures(self, negative: _HIST, positive: _HIST, shape: _HIST, rise: _HIST) -> dict[str, _HIST]:
        """Measures of each row of counts; ``shape`` and ``rise`` are what may be wrong about the inside of bins."""
        places, mean, deviation = _inside(negative + positive, self._edges, shape)
        points = mean[..., None] + deviation[..., None] * places
        steep, height = _line(negative, positive, places, deviation, rise)
        slope = (steep / deviation)[:, 0]
        intercept = height[:, 0] - slope * mean[:, 0]
        line = steep[..., None] * places + height[..., None]
        risen, fallen = expit(line), expit(-line)
        risen, fallen = risen / risen.sum(2, keepdims=True), fallen / fallen.sum(2, keepdims=True)
        inside = (risen * (np.cumsum(fallen, 2) - fallen / 2)).sum(2)
        below = np.cumsum(negative, 1) - negative
        positives, negatives = (np.maximum(part.sum(1), 1e-9) for part in (positive, negative))
        auroc = (positive * (below + negative * inside)).sum(1) / (positives * negatives)
        alarm = points > (self.centre if self.threshold is None else self.threshold) - self.centre
        found = np.clip((positive * (risen * alarm).sum(2)).sum(1) / positives, 0, 1)
        right = np.clip((negative * (fallen * ~alarm).sum(2)).sum(1) / negatives, 0, 1)
        predicted = expit(points + self.centre)
        wrong = positive * (risen * (1 - predicted) ** 2).sum(2) + negative * (fallen * predicted**2).sum(2)
        rows, everybody = positives + negatives, positive + negative
        return {
            "rows": positive.sum(1) + negative.sum(1),
            "positives": positive.sum(1),
            "prevalence": positives / rows,
            "auroc": auroc,
            "accuracy": (found * positives + right * negatives) / rows,
            "balanced_accuracy": (found + right) / 2,
            "sensitivity": found,
            "specificity": right,
            "calibration_slope": slope,
            "calibration_intercept": intercept - slope * self.centre,
            "brier": np.clip(wrong.sum(1) / rows, 0, 1),
            "sensitivities": np.clip(1 - np.cumsum(positive, 1)[:, :-1] / positives[:, None], 0, 1),
            "specificities": np.clip(np.cumsum(negative, 1)[:, :-1] / negatives[:, None], 0, 1),
            "predicted": predicted.mean(2),
            "observed": np.clip(positive / np.maximum(everybody, 1e-9), 0, 1),
            "in_bin": everybody,
        }

    def _thresholds(self, found: dict[str, _HIST]) -> dict[str, list[Any]]:
        scores = self._edges[1:-1] + self.centre
        return {
            "score": scores.tolist(),
            "risk": expit(scores).tolist(),
            **_columns("sensitivity", found["sensitivities"]),
            **_columns("specificity", found["specificities"]),
        }

    def _calibration(self, found: dict[str, _HIST]) -> dict[str, list[Any]]:
        return {
            "predicted": found["predicted"][0].tolist(),
            **_columns("observed", found["observed"]),
            **_columns("rows", found["in_bin"]),
        }

    def _compared(self, total: Total, cut: float) -> dict[str, list[Any]]:
        """A row for each group; one that may be smaller than ``least``, or is hardly known, has no figures."""
        table: dict[str, list[Any]] = {"group": list(self.groups)}
        for block in range(1, len(self.groups) + 1):
            found = self._measured(total, block, cut)
            rows, positives = _estimate(found["rows"]), _estimate(found["positives"])
            known = not is_vague(_possible(_estimate(found["auroc"])))
            found["auroc"] = np.clip(found["auroc"], 0, 1)
            shown = rows.low >= self.least and positives.low > 0 and rows.low > positives.high and known
            for name in ("rows", "prevalence", "auroc", "sensitivity", "specificity"):
                for column, (value,) in _columns(name, found[name][:, None]).items():
                    table.setdefault(column, []).append(value if shown else None)
        return table


_MEANING = (
    "Intervals are for patients like those in the test rows: they include noise, the chance that chose these rows, the "
    "width of bins, and what was cut. For these rows themselves they are wider than need be."
)


def error_of(question: ScoreQuestion, *, units: int, positives: float, noise: float) -> float:
    """Mean absolute error of the AUROC to expect, against its value on the same rows without noise and bins.

    For normal scores with an AUROC of 0.80. It falls as noise does: search the least ε by it.

    Parameters
    ----------
    question : ScoreQuestion
        With ``rows`` and ``prevalence``.
    units : int
        How many will answer.
    positives : float
        About how many of all test rows are positive. More than units of ``rows`` rows would have are cut.
    noise : float
        Standard deviation of each number of the sum.
    """
    middle = _USUAL**2 / 2
    below = ndtr((question._edges + middle) / _USUAL)
    above = 1 - ndtr((question._edges - middle) / _USUAL)
    negative, positive = np.diff(below), -np.diff(above)
    auroc = float(ndtr(_USUAL / math.sqrt(2)))
    ranks = (below[1:] + below[:-1]) / 2, (above[1:] + above[:-1]) / 2
    kept = min(positives, units * question.rows * question.prevalence) if question.rows >= 2 else positives
    counts = kept * (1 / question.prevalence - 1), kept
    deviations = (
        noise / scale / max(count, 1e-9) * math.sqrt(float(np.sum((rank - auroc) ** 2)))
        for scale, count, rank in zip(question.scales, counts, reversed(ranks), strict=True)
    )
    ties = float(np.sum(negative * positive)) / 2
    correction = auroc - float(positive @ (np.cumsum(negative) - negative)) - ties
    return math.sqrt(2 / math.pi) * math.hypot(*deviations, _UNSURE * correction)


def well_binned(question: ScoreQuestion, *, units: int, positives: float, noise: float) -> ScoreQuestion:
    """The same question with a number of bins that suits public numbers, those of :func:`error_of`.

    The AUROC wants few bins, calibration more: taken are as many, up to 40, as raise the error of the AUROC by no more
    than a fifth above the least.
    """
    choices = [replace(question, bins=bins) for bins in range(4, 41, 2)]
    errors = [error_of(choice, units=units, positives=positives, noise=noise) for choice in choices]
    return [choice for choice, error in zip(choices, errors, strict=True) if error <= 1.2 * min(errors)][-1]


def is_vague(auroc: Estimate) -> bool:
    """Whether an AUROC is known so little that it should be compared with nothing."""
    return auroc.high - auroc.low > _VAGUE


def _possible(auroc: Estimate) -> Estimate:
    """An AUROC between 0 and 1; 0.5 where it is hardly known, and anything where noise has left no possible one."""
    if auroc.low > 1 or auroc.high < 0:
        return Estimate(0.5, 0.0, 1.0)
    value, low, high = (min(max(number, 0.0), 1.0) for number in (auroc.value, auroc.low, auroc.high))
    found = Estimate(value, low, high)
    return Estimate(min(max(0.5, low), high), low, high) if is_vague(found) else found


def _estimate(values: _HIST) -> Estimate:
    low, high = np.quantile(values[1:], (0.025, 0.975))
    value = float(values[0])
    return Estimate(value, min(value, float(low)), max(value, float(high)))


def _columns(name: str, values: _HIST) -> dict[str, list[Any]]:
    found = [_estimate(column) for column in values.T]
    parts = {name: "value", f"{name}_low": "low", f"{name}_high": "high"}
    return {column: [getattr(one, part) for one in found] for column, part in parts.items()}


def _inside(counts: _HIST, edges: _HIST, shape: _HIST) -> tuple[_HIST, _HIST, _HIST]:
    """Equally likely scores in every bin, of a normal distribution that fits the histogram at its edges.

    Returns them as distances from the mean in deviations, then mean and deviation. Of edges beyond nearly all scores,
    which say no more than that, only the nearest on either side counts. With fewer than two edges amid the scores,
    their deviation is only known not to be larger.
    """
    share, inner = np.cumsum(counts, 1)[:, :-1] / np.maximum(counts.sum(1, keepdims=True), 1e-9), edges[1:-1]
    empty = np.maximum.accumulate(share, 1) < _RARE
    full = np.minimum.accumulate(share[:, ::-1], 1)[:, ::-1] > 1 - _RARE
    count = np.arange(len(inner))
    useful = (count >= empty.sum(1, keepdims=True) - 1) & (count <= len(inner) - full.sum(1, keepdims=True))
    amid = ((share > _RARE) & (share < 1 - _RARE)).sum(1, keepdims=True)
    share = np.clip(share, _RARE, 1 - _RARE)
    quantiles = ndtri(share)
    weights = useful * np.exp(-(quantiles**2)) / (share * (1 - share))
    weights /= weights.sum(1, keepdims=True)
    height, place = (weights * quantiles).sum(1, keepdims=True), (weights * inner).sum(1, keepdims=True)
    steep = (weights * (inner - place) * quantiles).sum(1, keepdims=True)
    steep /= np.maximum((weights * (inner - place) ** 2).sum(1, keepdims=True), 1e-9)
    deviation = np.where(amid < 2, np.exp(-5 * np.abs(np.log(shape))), shape) / np.clip(steep, 0.25, 20)
    mean = place - height * deviation
    cumulative = ndtr((edges - mean) / deviation)
    steps = (np.arange(_POINTS) + 0.5) / _POINTS
    reached = cumulative[:, :-1, None] + np.diff(cumulative, axis=1)[..., None] * steps
    return ndtri(np.clip(reached, 1e-9, 1 - 1e-9)), mean, deviation


def _line(negative: _HIST, positive: _HIST, places: _HIST, deviation: _HIST, rise: _HIST) -> tuple[_HIST, _HIST]:
    """Slope and intercept of a logistic regression of labels on scores that are known by bin, by Newton's method.

    Scores are in deviations. Slopes are held near 1 per logit, as one row would, or less where scores are narrow; bins
    that do not tell a slope have that and, by ``rise``, how much it may be wrong.
    """
    counts, middles = negative + positive, places.mean(2)
    weights = np.maximum(counts, 0)[..., None] / places.shape[2]
    reach = np.maximum(deviation, 1.0)
    usual = np.minimum(deviation, 2.0) + reach * rise
    line = np.concatenate([usual, np.zeros_like(usual)], 1)
    start = line.copy()
    hold = np.zeros((len(counts), 2, 2))
    hold[:, 0, 0], hold[:, 1, 1] = 1 / reach[:, 0] ** 2, 1e-3
    axes = np.stack([middles, np.ones_like(middles)], 1)
    sides = np.stack([places, np.ones_like(places)], 1)
    for _ in range(25):
        risk = expit(line[:, 0, None, None] * places + line[:, 1, None, None])
        gradient = np.einsum("rab,rb->ra", axes, positive - counts * risk.mean(2))
        gradient[:, 0] -= (line - start)[:, 0] * hold[:, 0, 0]
        curvature = np.einsum("rab,rbk,rcbk->rac", axes, weights * risk * (1 - risk), sides)
        curvature = (curvature + curvature.swapaxes(1, 2)) / 2 + hold
        values, vectors = np.linalg.eigh(curvature)
        step = np.einsum("rab,rb,rcb,rc->ra", vectors, 1 / np.maximum(values, 1e-3), vectors, gradient)
        line += step * np.minimum(1, 1 / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-9))
    line = np.clip(line, -20, 20)
    return line[:, :1], line[:, 1:]
