"""What a model sees of an admission, in words with a digest; imports polars, but neither rows nor PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowkey.features import digest_of
from lowkey.tabular import Hashed, Rule
from lowkey.tasks.mortality.ranges import limits_of
from lowkey.tasks.mortality.source import rule_of
from lowkey.tasks.mortality.sources import find_source
from lowkey.tasks.task import Study

_FORM = 1
"""To be raised with any change of what :mod:`lowkey.tasks.mortality.public` makes of a row by the same rules."""


def features(study: Study) -> str:
    """The public rules of the admissions, or that there are none."""
    settings = study.data
    if settings.encoding == "fitted":
        return "ranges and vocabularies fitted to all training rows, outside of any ε"
    limits = limits_of(settings)
    if settings.encoding == "private" and not limits:
        return "public rules, and ranges that are still to be asked for"
    what = "public rules and private ranges" if limits else "public rules"
    if settings.name == "synthetic":
        form = {"form": _FORM} | (
            {"ranges": [[name, *_plain(rule)] for name, rule in limits.items()]} if limits else {}
        )
        return f"{what} of synthetic admissions, sha256 {digest_of('synthetic admissions', form)}"
    source = find_source(settings.name)
    digest = rules_digest(source.chosen(settings.features), {**source.public, **limits})
    return f"{what} of {source.name}, sha256 {digest}"


def rules_digest(names: Iterable[str], rules: Mapping[str, Rule]) -> str:
    """SHA-256 of the public rules of some features, in this order.

    Parameters
    ----------
    names : iterable of str
        The features.
    rules : mapping of str to Rule
        Must have a rule for each of them.
    """
    features = [[name, *_plain(rule_of(name, rules))] for name in names]
    return digest_of("admissions", {"form": _FORM, "features": features})


def _plain(rule: Rule) -> list[Any]:
    settings = vars(rule) | ({"columns": list(rule.columns.items())} if isinstance(rule, Hashed) else {})
    return [type(rule).__name__, list(settings.values())]
