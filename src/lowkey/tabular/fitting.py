"""From a schema to the questions that it needs, and from their answers to an encoder.

Everything that this room knows about the form of questions and answers is in this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lowkey.analytics import Answer, Estimate
from lowkey.errors import DataError, InvalidInput
from lowkey.tabular.encoder import Column, Cost, Encoder
from lowkey.tabular.rules import Limits, Listed, Rule
from lowkey.tabular.schema import NumberPlan, Plan, Schema, TextPlan

LOW, MEDIAN, HIGH = 0.05, 0.5, 0.95
"""Quantiles that become limits and fill. Those nearer to the ends drown in noise sooner, and teach a model no more."""
_MISSING = "missing fields"
_CODES, _HELD = 8, 16
"""How many codes of a row, and of a unit, count in full."""


def questions(schema: Schema) -> list[dict[str, Any]]:
    """What must be asked, each as a table ``[[questions]]`` with the ``kind`` of :data:`lowkey.analytics.QUESTIONS`.

    None is needed where everything is public.
    """
    found: list[dict[str, Any]] = []
    for plan in schema.columns:
        if not plan.ask:
            continue
        about = {"name": _name(plan), "column": plan.name}
        if isinstance(plan, NumberPlan):
            public = {"low": float(plan.low), "high": float(plan.high), "bins": plan.bins}
            found.append({"kind": "quantiles", **about, **public, "at": [LOW, MEDIAN, HIGH]})
        elif plan.values:
            several = {"most": min(_CODES, len(plan.values))} if plan.kind == "codes" else {}
            found.append({"kind": "frequencies", **about, "vocabulary": list(plan.values), **several})
        else:
            spelled = {"alphabet": plan.alphabet, "characters": plan.characters}
            told = {key: value for key, value in spelled.items() if value is not None}
            found.append({"kind": "codes", **about, **told})
    if unsure := [plan.name for plan in schema.columns if plan.missing == "ask"]:
        found.append({"kind": "missingness", "name": _MISSING, "of": unsure})
    return found


def confirmations(schema: Schema, answers: Iterable[Answer], *, delta: float = 1e-5) -> list[dict[str, Any]]:
    """What must be asked next where texts without a public list were asked for: how many units hold each candidate.

    Parameters
    ----------
    schema : Schema
        What was asked for.
    answers : iterable of Answer
        To :func:`questions`.
    delta : float
        The chance that a text appears that a single unit holds.
    """
    known, found = {answer.question: answer for answer in answers}, list[dict[str, Any]]()
    for plan in schema.columns:
        if not isinstance(plan, TextPlan) or not plan.ask or plan.values:
            continue
        if _name(plan) not in known:
            raise InvalidInput(f"the answers lack {_name(plan)!r}; ask all that the schema asks for first")
        candidates = [code for (code,) in _table(known[_name(plan)], "candidates", "code")]
        if candidates:
            about = {"name": f"{_name(plan)} confirmed", "column": plan.name, "vocabulary": candidates}
            found.append({"kind": "frequencies", **about, "among": "units", "most": _HELD, "delta": delta})
    return found


def _name(plan: Plan) -> str:
    return f"{'limits' if isinstance(plan, NumberPlan) else 'texts'} of {plan.name}"


def fit(schema: Schema, answers: Iterable[Answer] = (), cost: Cost | None = None) -> Encoder:
    """The encoder of a schema.

    Parameters
    ----------
    schema : Schema
        What is public, and what was asked.
    answers : iterable of Answer
        To all of its questions; others are ignored.
    cost : Cost or None
        What the answers cost; None means that nobody told.

    Raises
    ------
    InvalidInput
        If an answer is missing, or is not that of the question.

    Guarantees
    ----------
    Nothing but public settings and private answers is used: post-processing, which costs no privacy.
    """
    known, notes = {answer.question: answer for answer in answers}, []
    asked = questions(schema)
    if lacking := [question["name"] for question in asked if question["name"] not in known]:
        raise InvalidInput(f"the answers lack {', '.join(map(repr, lacking))}; ask all that the schema asks for")
    columns = []
    for plan in schema.columns:
        missing = _is_missing(plan, known[_MISSING]) if plan.missing == "ask" else bool(plan.missing)
        rule: Rule = plan.rule(missing=missing)
        if plan.ask:
            narrower = _narrowed(plan, missing, _final(plan, known))
            public = "limits stay" if isinstance(plan, NumberPlan) else "list stays" if plan.values else "hash stays"
            notes.append(
                f"The {_name(plan)} are a private answer."
                if narrower is not None
                else f"The answer about the {_name(plan)} is not above its noise, so that the public {public}."
            )
            rule = narrower or rule
        columns.append(Column(name=plan.name, kind=plan.kind, rule=rule, separator=plan.separator))
    spent = Cost() if not asked else cost or Cost(epsilon=None, delta=None)
    return Encoder(columns=tuple(columns), missing=schema.missing, cost=spent, notes=tuple(notes))


def read_answers(path: str | Path) -> list[Answer]:
    """The answers in a JSON file: a list of what :meth:`lowkey.analytics.Answer.to_json` writes."""
    try:
        found = json.loads(Path(path).read_bytes())
        return [_answer(table) for table in found]
    except OSError as error:
        raise DataError(f"the answers {path} cannot be read ({error.strerror}); check the path") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DataError(
            f"{path} holds no answers of private statistics; give the file that 'lowkey stats' wrote"
        ) from None


def _answer(table: Mapping[str, Any]) -> Answer:
    return Answer(
        question=table["question"],
        estimates={name: Estimate(**numbers) for name, numbers in table["estimates"].items()},
        tables={name: {key: list(values) for key, values in rows.items()} for name, rows in table["tables"].items()},
        notes=tuple(table["notes"]),
    )


def _final(plan: Plan, known: Mapping[str, Answer]) -> Answer:
    """The answer to a plan's question; candidates for frequent texts must have been confirmed by another question."""
    answer = known[_name(plan)]
    if isinstance(plan, NumberPlan) or plan.values:
        return answer
    confirmed = known.get(f"{_name(plan)} confirmed")
    if confirmed is None and _table(answer, "candidates", "code"):
        raise InvalidInput(f"the candidates of {answer.question!r} were not confirmed; ask how frequent they are")
    return confirmed or Answer(question=answer.question, tables={"frequencies": {}})


def _narrowed(plan: Plan, missing: bool, answer: Answer) -> Rule | None:
    """The rule that an answer gives; None if it says no more than noise does."""
    if isinstance(plan, TextPlan):
        texts = _frequent(answer)
        return Listed(texts, plan.other, missing) if texts else None
    low, median, high = (_quantile(answer, level) for level in (LOW, MEDIAN, HIGH))
    if not low.value < high.value or low.high >= high.low:  # nobody can tell one from the other
        return None
    fill = median.value if plan.fill is None else float(plan.fill)
    return Limits(low.value, high.value, min(max(fill, low.value), high.value), missing)


def _quantile(answer: Answer, level: float) -> Estimate:
    found = answer.estimates.get(f"quantile {level:g}")
    if found is None:
        raise InvalidInput(f"the answer {answer.question!r} has no quantile {level:g}; ask for it")
    return found


def _frequent(answer: Answer) -> tuple[str, ...]:
    """Texts whose frequency is above 0 beyond the noise, most frequent first."""
    rows = _table(answer, "frequencies", "entry", "share", "low")
    kept = sorted((-share, text) for text, share, low in rows if text is not None and _above_0(low))
    return tuple(text for _, text in kept)


def _is_missing(plan: Plan, answer: Answer) -> bool:
    """Whether fields of this column are missing, beyond the noise."""
    lows = dict(_table(answer, "missing", "column", "low"))
    if plan.name not in lows:
        raise InvalidInput(f"the answer {answer.question!r} says nothing about the column {plan.name!r}; ask for it")
    return _above_0(lows[plan.name])


def _above_0(low: object) -> bool:
    return isinstance(low, int | float) and low > 0


def _table(answer: Answer, name: str, *columns: str) -> list[tuple[Any, ...]]:
    table = answer.tables.get(name)
    if table is not None and not table:  # of nothing
        return []
    if table is None or not set(columns) <= table.keys():
        raise InvalidInput(
            f"the answer {answer.question!r} has no table {name!r} with {', '.join(columns)}; it answers something else"
        )
    return list(zip(*(table[column] for column in columns), strict=True))
