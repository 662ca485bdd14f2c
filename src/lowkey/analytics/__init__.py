"""Private statistics: questions that all clients answer in one masked, noised sum, and what the sums say."""

from __future__ import annotations

from typing import Any

from lowkey.analytics.codes import FrequentCodes
from lowkey.analytics.histograms import RANGE_BINS, Histogram, Quantiles
from lowkey.analytics.moments import Moments
from lowkey.analytics.numbers import Count, Mean, Missingness, Sum
from lowkey.analytics.question import Answer, Columns, Estimate, Question, Starts, Total, Vectors, digest_of
from lowkey.analytics.scores import ScoreQuestion, error_of, is_vague, well_binned
from lowkey.analytics.vocabularies import Frequencies
from lowkey.registry import Registry

QUESTIONS: Registry[Any] = Registry(
    "question.kind",
    {
        "count": Count,
        "sum": Sum,
        "mean": Mean,
        "missingness": Missingness,
        "histogram": Histogram,
        "quantiles": Quantiles,
        "frequencies": Frequencies,
        "codes": FrequentCodes,
        "moments": Moments,
        "scores": ScoreQuestion,
    },
)
"""Questions by the ``kind`` under which a file asks them."""


def asked_of(question: Question) -> str:
    """A question as the terms of a round name it: kind, name, and the digest of all its settings."""
    kind = QUESTIONS.name_of(type(question))
    return f"{kind} {question.name!r}, SHA-256 {digest_of(kind, question)}"


__all__ = [
    "QUESTIONS",
    "RANGE_BINS",
    "Answer",
    "Columns",
    "Count",
    "Estimate",
    "Frequencies",
    "FrequentCodes",
    "Histogram",
    "Mean",
    "Missingness",
    "Moments",
    "Quantiles",
    "Question",
    "ScoreQuestion",
    "Starts",
    "Sum",
    "Total",
    "Vectors",
    "asked_of",
    "digest_of",
    "error_of",
    "is_vague",
    "well_binned",
]
