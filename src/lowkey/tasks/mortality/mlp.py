"""The paper's network for admissions."""

from __future__ import annotations

from torch import nn

from lowkey.learning import SparseLinear


class MortalityMLP(nn.Sequential):
    """Two hidden layers with ReLU and dropout, and the logit of death in hospital; it takes sparse rows directly.

    With the paper's 7,280 inputs it has exactly 1,496,601 parameters.
    """

    takes_sparse_rows = True

    def __init__(self, inputs: int, hidden: int = 200, dropout: float = 0.5) -> None:
        super().__init__(
            SparseLinear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 1),
        )
