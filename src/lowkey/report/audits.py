"""The picture of an audit: what the attacker saw, and what that proves against the claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from lowkey.figures import round_up
from lowkey.report.canvas import as_png, new_figure

_ABSENT, _PRESENT, _CLAIM = "#0072b2", "#d55e00", "#000000"


def write_audit(audit: Mapping[str, Any], out: Path) -> list[Path]:
    """Write ``audit.json``, and ``audit.png`` drawn from it.

    Parameters
    ----------
    audit : Mapping
        Result of an audit, as numbers and text.
    out : Path
        Directory for both files; made if it does not exist.

    Returns
    -------
    list of Path
        The two files.
    """
    out.mkdir(parents=True, exist_ok=True)
    data, picture = out / "audit.json", out / "audit.png"
    data.write_text(json.dumps(audit, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    picture.write_bytes(audit_figure(audit))
    return [data, picture]


def audit_figure(audit: Mapping[str, Any]) -> bytes:
    """Draw the content of an ``audit.json``.

    Parameters
    ----------
    audit : Mapping
        The same as for :func:`write_audit`.

    Returns
    -------
    bytes
        A PNG file.
    """
    figure = new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_views(left, audit)
    _draw_bounds(right, audit)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    planted = f", with a planted defect: {audit['planted']}" if audit["planted"] else ""
    figure.suptitle(f"Audit of {audit['preset']}{planted}", fontsize=11)
    return as_png(figure)


def _draw_views(axes: Axes, audit: Mapping[str, Any]) -> None:
    """Draw the histograms of what the attacker saw, with the client present and absent."""
    seen = audit["seen"]
    for name, colour in (("absent", _ABSENT), ("present", _PRESENT)):
        label = f"client {name}, {audit['two_world'][name]:,} trials"
        axes.stairs(seen[name], seen["edges"], color=colour, fill=True, alpha=0.3)
        axes.stairs(seen[name], seen["edges"], color=colour, linewidth=1.4, label=label)
    axes.axvline(0.5, color="#7f7f7f", linestyle=":", linewidth=1.2, label="guess “present” to the right")
    axes.set_xlabel("the client's coordinate in the released sum, in clip norms")
    axes.set_ylabel("density")
    axes.set_ylim(0, 1.45 * max(*seen["present"], *seen["absent"]))
    axes.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_bounds(axes: Axes, audit: Mapping[str, Any]) -> None:
    """Draw each lower bound as a bar from 0, with the claim as a line."""
    claimed = audit["epsilon_claimed"]
    bounds = [("two worlds", audit["two_world"]["epsilon"]), ("one run", audit["one_run"]["epsilon"])]
    for height, (_, epsilon) in enumerate(bounds):
        axes.barh(height, epsilon, height=0.5, color=_PRESENT if epsilon > claimed else _ABSENT, alpha=0.75)
    axes.axvline(claimed, color=_CLAIM, linewidth=1.6)
    axes.set_title(f"line: claimed ε = {round_up(claimed, 4)}", fontsize=10)
    axes.set_yticks(range(len(bounds)), [f"{name}\nε ≥ {epsilon:.3f}" for name, epsilon in bounds])
    axes.set_ylim(1.5, -0.5)
    axes.set_xlim(0, 1.25 * max(claimed, *(epsilon for _, epsilon in bounds)))
    axes.set_xlabel(f"ε of one round at δ = {audit['delta']:g}")
