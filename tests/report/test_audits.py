"""The picture of an audit, from its JSON alone."""

from __future__ import annotations

import json
from pathlib import Path

from lowkey.report import write_audit

AUDIT = {
    "preset": "demo/fl-cs-dp",
    "planted": "low-noise",
    "delta": 1e-5,
    "epsilon_claimed": 2.6727,
    "two_world": {"epsilon": 2.9, "present": 1000, "absent": 2000},
    "one_run": {"epsilon": 1.4},
    "seen": {"edges": [-2.0, 0.0, 2.0, 4.0], "absent": [0.25, 0.2, 0.05], "present": [0.1, 0.25, 0.15]},
}


def test_an_audit_can_be_drawn_again_from_its_json(tmp_path: Path) -> None:
    data, picture = write_audit(AUDIT, tmp_path / "first")
    assert picture.read_bytes().startswith(b"\x89PNG")
    read = json.loads(data.read_text(encoding="utf-8"))
    assert read == AUDIT
    again = write_audit(read, tmp_path / "second")
    assert again[1].read_bytes() == picture.read_bytes()
