"""The lists of slow tests and of tests with servers name what exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.marks import PROCESSES, SLOW

TESTS = Path(__file__).parent


@pytest.mark.parametrize("file", sorted(PROCESSES))
def test_files_with_servers_exist(file: str) -> None:
    assert (TESTS / file).is_file(), "moved? Then say so in tests/marks.py"


@pytest.mark.parametrize("test", sorted(SLOW))
def test_slow_tests_exist(test: str) -> None:
    file, name = test.split("::")
    assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), "renamed? Then say so in tests/marks.py"
