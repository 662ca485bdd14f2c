"""How a client answers questions: from its own columns, or from the model's scores of its own test rows."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lowkey.analytics import Columns, Question
from lowkey.errors import CannotContribute, InvalidInput
from lowkey.learning.datasets import ClientDatasets, Persons, as_rows, in_batches, persons_of
from lowkey.learning.flat import FlatModel
from lowkey.learning.heads import RiskHead
from lowkey.types import ClientId, FloatArray

_log = logging.getLogger(__name__)
_AT_ONCE = 4000  # rows whose vectors are made together


class DataRespondent:
    """Satisfies :class:`lowkey.protocols.Respondent`.

    Guarantees
    ----------
    Where persons are protected, what one person's rows are changes that person's vector and no other's: rows that the
    question cannot use make it zeros, and the log of the client's own machine counts them.

    Parameters
    ----------
    module : torch.nn.Module or None
        The model, for questions about its scores; None where none are asked.
    held_out : ClientDatasets or None
        Each client's own test examples, whose targets are 0 or 1.
    tables : sequence of tables, or None
        Each client's columns, and whose each row is.
    units : {"client", "ids", "rows"}
        Who has one vector: the client, every person, or every row.
    """

    def __init__(
        self,
        module: nn.Module | None,
        held_out: ClientDatasets | None,
        tables: Any,
        *,
        units: Literal["client", "ids", "rows"],
    ) -> None:
        self._model = None if module is None else FlatModel(module)
        self._held_out, self._tables, self._units = held_out, tables, units

    def answers(self, question: Question, weights: FloatArray, client: ClientId) -> Iterator[NDArray[np.float64]]:
        columns, persons = (
            self._scores(weights, client) if question.asks_of == "scores" else self._columns(question, client)
        )
        if missing := [name for name in question.columns if name not in columns]:
            raise CannotContribute(
                f"its rows have no column {missing[0]!r}, which {question.name!r} asks about; they have "
                f"{', '.join(columns)}"
            )
        bad, units = 0, 0
        reason: CannotContribute | None = None
        for block in persons.blocks(_AT_ONCE):
            rows = {name: columns[name][block.rows] for name in question.columns}
            units += len(block.starts) - 1
            try:
                vectors = question.vectors(rows, block.starts)
            except CannotContribute as error:
                if self._units == "client":
                    raise
                vectors, unusable = _one_by_one(question, rows, block.starts)
                bad, reason = bad + unusable, reason or error
            yield vectors
        if bad:
            _log.warning(
                "%d of %d %s cannot answer %r and count as zeros, the first because %s",
                bad, units, "persons" if self._units == "ids" else "rows", question.name, reason,
            )  # fmt: skip

    def _columns(self, question: Question, client: ClientId) -> tuple[Columns, Persons]:
        if self._tables is None:
            raise InvalidInput(
                f"{question.name!r} asks about columns, and this task has no tables; give it Task.tables, and "
                "local_table for nodes"
            )
        columns, ids = self._tables[client]
        count = {len(column) for column in columns.values()}
        if len(count) != 1:
            raise CannotContribute("its columns are of different lengths, or there are none")
        return columns, self._persons(count.pop(), ids)

    def _scores(self, weights: FloatArray, client: ClientId) -> tuple[Columns, Persons]:
        if self._held_out is None or self._model is None:
            raise InvalidInput(
                "clients are to evaluate the model, and this task has no test examples of theirs; give it "
                "Task.held_out, and local_held_out for nodes, or set evaluation.where = 'server'"
            )
        examples = self._held_out[client]
        groups: dict[str, NDArray[Any]] = {}
        if isinstance(examples, tuple) and len(examples) == 4:  # the fourth part has groups, such as age bands
            *three, named = examples
            examples, groups = tuple(three), dict(named)
        _, targets = as_rows(examples)
        ids = examples[2] if isinstance(examples, tuple) and len(examples) == 3 else None
        scores = self._logits(weights, examples)
        if scores.shape != (len(targets),):
            raise InvalidInput("the model has more than one output; evaluation by clients is for a yes or no")
        columns = {"score": scores, "label": targets.numpy().astype(np.float64), **groups}
        return columns, self._persons(len(targets), ids)

    @torch.inference_mode()
    def _logits(self, weights: FloatArray, examples: Any) -> NDArray[np.float64]:
        assert self._model is not None
        self._model.load(weights)
        module = self._model.module.eval()
        sparse = bool(getattr(module, "takes_sparse_rows", False))
        batches, _ = in_batches(examples, _AT_ONCE, sparse=sparse)
        outputs: Tensor = torch.cat([module(self._model.arranged(batch())) for batch in batches])
        if isinstance(module, RiskHead):  # logits of risks, also before they are calibrated
            outputs = module.recalibrated(outputs)
        return outputs.squeeze(-1).double().numpy() if outputs.ndim == 2 else outputs.double().numpy()

    def _persons(self, count: int, ids: Any) -> Persons:
        if self._units == "client":
            return Persons(np.arange(count), np.array([0, count]))
        targets = np.empty(count)
        return persons_of((targets, targets, ids), by_row=self._units == "rows")


def _one_by_one(question: Question, rows: Columns, starts: NDArray[np.intp]) -> tuple[NDArray[np.float64], int]:
    """Each unit's vector by itself, zeros where it has none, and how many have none."""
    found, bad = np.zeros((len(starts) - 1, question.length)), 0
    for unit, (first, end) in enumerate(itertools.pairwise(starts)):
        own = {name: column[first:end] for name, column in rows.items()}
        try:
            found[unit] = question.vectors(own, np.array([0, end - first]))[0]
        except CannotContribute:
            bad += 1
    return found, bad
