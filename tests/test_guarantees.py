"""docs/guarantees.md promises nothing without a test, and every attack defends a sentence of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"
LINK = re.compile(r'\]\((?P<file>[^)\s]+)(?: "(?P<names>[^"]*)")?\)')
ATTACKS = sorted((TESTS / "attacks").glob("test_*.py"))


def promises() -> list[str]:
    """Every paragraph and list item from the first heading to the assumptions; quotes, tables and code only explain."""
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("\n## ") : text.index("\n## Assumptions")]
    part = re.sub(r"^```.*?^```$", "", part, flags=re.DOTALL | re.MULTILINE)
    blocks = re.split(r"\n\s*\n|\n(?=- )", part)
    return [" ".join(block.split()) for block in blocks if block.strip() and block.lstrip()[0] not in "#|>"]


def linked_tests(promise: str) -> list[tuple[Path, list[str]]]:
    """Files of tests that a promise links to, and the names in them, if it gives any."""
    found = [(PAGE.parent / link["file"], (link["names"] or "").split()) for link in LINK.finditer(promise)]
    return [(file.resolve(), names) for file, names in found if TESTS in file.resolve().parents]


def plain(text: str) -> str:
    """A text without Markdown and line breaks."""
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)|[*`]", r"\1", text).split())


def sentence_of(attack: Path) -> str:
    """The sentence that an attack says it defends."""
    for node in ast.parse(attack.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["DEFENDS"]:
            return str(ast.literal_eval(node.value))
    raise AssertionError(f"{attack.name} does not say which sentence of guarantees.md it DEFENDS")


def test_the_page_has_promises() -> None:
    assert len(promises()) > 50


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: plain(promise)[:60])
def test_every_promise_has_a_test(promise: str) -> None:
    linked = linked_tests(promise)
    assert linked, f"no test is linked from: {promise}"
    for file, names in linked:
        assert file.is_file(), f"{file} does not exist"
        text = file.read_text(encoding="utf-8")
        for name in names:
            assert f"def {name}(" in text, f"{file.name} has no {name}"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.stem)
def test_every_attack_defends_a_promise(attack: Path) -> None:
    assert ast.get_docstring(ast.parse(attack.read_text(encoding="utf-8"))), "an attack is told as a story"
    sentence = plain(sentence_of(attack))
    defended = [promise for promise in promises() if sentence in plain(promise)]
    assert defended, f"guarantees.md does not say: {sentence}"
    assert any(attack in (file for file, _ in linked_tests(promise)) for promise in defended), (
        "its promise lacks the link"
    )


def test_there_are_attacks() -> None:
    assert len(ATTACKS) >= 9
