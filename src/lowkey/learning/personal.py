"""What a client may do with the common model for itself: after the last round, on its own rows, at no ε.

Nothing of it is sent. A client's correction is the most likely one where corrections of clients are normal around none,
with given deviations: a client with few rows keeps the common model, one with many follows its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from lowkey import checks
from lowkey.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Personal:
    """By how much clients differ: standard deviations of their corrections; 0 leaves a part as it is.

    Parameters
    ----------
    intercept : float
        Of the log-odds of the event, the same for all rows of a client.
    slope : float
        Of the slope by which a client's log-odds rise with the common ones.
    weights : float
        Of each weight of the head. Needs the client's features.
    """

    intercept: float = 0.5
    slope: float = 0.2
    weights: float = 0.0

    def __post_init__(self) -> None:
        for name in ("intercept", "slope", "weights"):
            checks.not_negative(name, getattr(self, name))

    def fit(self, logits: NDArray[Any], labels: NDArray[Any], inputs: Any = None, *, centre: float = 0.0) -> Correction:
        """The correction of a client.

        Parameters
        ----------
        logits : array
            Logits of the common model's risks for the client's rows: best those that it learned from.
        labels : array
            0 or 1 for each.
        inputs : array, sparse array or None
            Features of the rows, for ``weights``.
        centre : float
            The logit at which a change of the slope changes nothing, such as that of the usual risk.
        """
        common, happened = np.asarray(logits, np.float64).ravel(), np.asarray(labels, np.float64).ravel()
        if len(common) != len(happened):
            raise InvalidInput(f"there are {len(common)} logits but {len(happened)} labels; they must match")
        if not np.isfinite(common).all() or not np.isin(happened, (0, 1)).all():
            raise InvalidInput("logits must be finite numbers and labels 0 or 1; check the client's rows")
        if self.weights and inputs is None:
            raise InvalidInput("weights is above 0, which needs inputs, the features of the rows; give them")
        columns = inputs.shape[1] if self.weights else 0
        plain = np.stack([np.full_like(common, self.intercept), self.slope * (common - centre)], axis=1)

        def moved(standard: NDArray[np.float64]) -> NDArray[np.float64]:
            change: NDArray[np.float64] = common + plain @ standard[:2]
            return change + inputs @ (self.weights * standard[2:]) if columns else change

        def loss(standard: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            now = moved(standard)
            wrong = scipy.special.expit(now) - happened
            gradient = np.concatenate([plain.T @ wrong, self.weights * (inputs.T @ wrong) if columns else []])
            value = float(np.sum(np.logaddexp(0, now) - happened * now) + standard @ standard / 2)
            return value, gradient + standard

        found = scipy.optimize.minimize(loss, np.zeros(2 + columns), jac=True, method="L-BFGS-B").x
        return Correction(
            intercept=float(self.intercept * found[0]),
            slope=float(self.slope * found[1]),
            centre=centre,
            weights=self.weights * found[2:] if columns else None,
        )


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What a client adds to the common model's logits."""

    intercept: float
    slope: float
    centre: float
    weights: NDArray[np.float64] | None = field(default=None, repr=False)

    def apply(self, logits: NDArray[Any], inputs: Any = None) -> NDArray[np.float64]:
        """Logits of this client's risks, from those of the common model, and features where weights were corrected."""
        common = np.asarray(logits, np.float64)
        corrected: NDArray[np.float64] = common + self.intercept + self.slope * (common - self.centre)
        if self.weights is None:
            return corrected
        if inputs is None:
            raise InvalidInput("this correction has weights; give the features of the rows, too")
        return corrected + np.asarray(inputs @ self.weights, np.float64)
