"""Tables of one's own: an encoder that all clients agree on, and what it makes of a client's CSV or Parquet file.

What reads tables needs polars (the extra ``hospital``), and is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names
from lowkey.tabular.encoder import Column, Cost, Encoder, load_encoder
from lowkey.tabular.rules import Hashed, Limits, Listed, Rule, bucket
from lowkey.tabular.schema import NumberPlan, Schema, TextPlan, read_schema

if TYPE_CHECKING:
    from lowkey.tabular.applying import Encoded, apply
    from lowkey.tabular.blocks import Part, SparseRows, blocks_of, joined
    from lowkey.tabular.fitting import confirmations, fit, questions, read_answers
    from lowkey.tabular.tables import labels_of, persons_of, raw_columns, read_table, readable

_HOMES = {
    "applying": ("Encoded", "apply"),
    "blocks": ("Part", "SparseRows", "blocks_of", "joined"),
    "fitting": ("confirmations", "fit", "questions", "read_answers"),
    "tables": ("labels_of", "persons_of", "raw_columns", "read_table", "readable"),
}
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Column",
    "Cost",
    "Encoded",
    "Encoder",
    "Hashed",
    "Limits",
    "Listed",
    "NumberPlan",
    "Part",
    "Rule",
    "Schema",
    "SparseRows",
    "TextPlan",
    "apply",
    "blocks_of",
    "bucket",
    "confirmations",
    "fit",
    "joined",
    "labels_of",
    "load_encoder",
    "persons_of",
    "questions",
    "raw_columns",
    "read_answers",
    "read_schema",
    "read_table",
    "readable",
]
