"""Admissions to sparse numbers by public rules alone: nothing is fitted, so no ε is needed.

The rules are those of an encoder (:mod:`lowkey.tabular`): limits of numbers, lists of texts, hashes of texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from lowkey.tabular import Limits, Part, Rule, SparseRows, blocks_of, joined
from lowkey.tasks.mortality.admissions import Admissions
from lowkey.tasks.mortality.features import Rows
from lowkey.tasks.mortality.source import rule_of


def public_features(
    admissions: Admissions, rows: Rows, rules: Mapping[str, Rule]
) -> tuple[SparseRows, tuple[str, ...]]:
    """Sparse rows of the given admissions, none longer than 1, and the names of their columns.

    Parameters
    ----------
    admissions : Admissions
        All rows.
    rows : Rows
        Which of them.
    rules : mapping of str to Rule
        The rule of each feature.
    """
    return joined(_blocks(admissions, rows, rules), len(rows))


def _blocks(admissions: Admissions, rows: Rows, rules: Mapping[str, Rule]) -> Iterator[Part]:
    for name in admissions.columns:
        rule = rule_of(name, rules)
        numbers = isinstance(rule, Limits)
        yield from blocks_of(name, rule, admissions.numeric[name][rows] if numbers else _lists(admissions, name, rows))


def _lists(admissions: Admissions, name: str, rows: Rows) -> pl.Series:
    codes = name in admissions.codes.columns
    texts = admissions.codes[name][rows] if codes else admissions.categorical[name][rows].reshape((-1, 1))
    return texts.cast(pl.List(pl.String))
