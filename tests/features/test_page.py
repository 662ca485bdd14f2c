"""The examples of docs/features.md, taken from the page and run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from lowkey.features import FEATURES

PAGE = Path(__file__).parents[2] / "docs" / "features.md"


def names_after(number: int) -> dict[str, Any]:
    """What a block of Python on the page defines."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(blocks[number], names)
    return names


def test_the_chain_for_images() -> None:
    chain = names_after(0)["images"]
    mapped = chain(np.random.default_rng(0).random((2, 1, 28, 28), np.float32))
    assert mapped.shape == (2, chain.width((1, 28, 28))) == (2, 1501)
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 2**0.5, rtol=1e-5)
    assert len(chain.digest) == 64


def test_the_chain_for_tables() -> None:
    chain = names_after(1)["table"]
    rows = np.random.default_rng(0).random((3, 500), np.float32)
    rows[1, 1] = np.nan
    mapped = chain(rows)
    assert mapped.shape == (3, chain.width(500)) == (3, 8 + 5 + 64)
    assert mapped[1, 12] > 0


def test_the_page_names_every_kind() -> None:
    listed = re.findall(r"^\| `([a-z-]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == list(FEATURES)
