"""The tests themselves: no assertion that holds whatever the code does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("*.py"))


def cannot_fail(test: ast.expr) -> str | None:
    """Why an assertion of this expression proves nothing; None where nothing is wrong with it."""
    match test:
        case ast.IfExp():
            return "a condition is its outermost part, so that one branch may assert nothing; put it in brackets"
        case ast.Constant() | ast.JoinedStr() | ast.Lambda() | ast.GeneratorExp():
            return "it is the same whatever the code does"
        case ast.Tuple(elts=[_, *_]) | ast.List(elts=[_, *_]) | ast.Set() | ast.Dict(keys=[_, *_]):
            return "a collection that is not empty is always true"
        case ast.BoolOp(op=ast.Or(), values=values) if any(isinstance(value, ast.Constant) for value in values):
            return "one of its alternatives is a constant"
    return None


def findings(source: str) -> list[tuple[int, str]]:
    """Lines of assertions that cannot fail, and why."""
    asserts = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    return [(node.lineno, reason) for node in asserts if (reason := cannot_fail(node.test)) is not None]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(Path(__file__).parent)))
def test_every_assertion_can_fail(file: Path) -> None:
    assert findings(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    [
        "assert a == [1] if c else [2]",
        "assert (a if c else b)",
        "assert a == 1 if c else True",
        "assert True",
        "assert 'text'",
        "assert f'{a}'",
        "assert (a == b, 'message')",
        "assert [a == b]",
        "assert {a: b}",
        "assert (x for x in a)",
        "assert a == b or True",
    ],
)
def test_what_cannot_fail_is_found(planted: str) -> None:
    assert [line for line, _ in findings(f"def test() -> None:\n    {planted}")] == [2]


@pytest.mark.parametrize(
    "fine",
    ["assert a == ([1] if c else [2])", "assert a == (1, 2)", "assert a, f'message {b}'", "assert a or b", "assert ()"],
)
def test_what_can_fail_is_left_alone(fine: str) -> None:
    assert findings(fine) == []
