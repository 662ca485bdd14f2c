"""Writing a report: Markdown, pictures, and one HTML page with everything inside."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from lowkey.report.answers import sections
from lowkey.report.figures import figures
from lowkey.report.notes import notes
from lowkey.report.runs import load_runs
from lowkey.report.tables import header, rows

_PAGES = ("report.md", "report.html")


def write_report(paths: Sequence[Path], out: Path, *, title: str) -> tuple[list[dict[str, Any]], list[Path]]:
    """Compare runs of one task: Markdown, PNG files, and one HTML page that needs no other file.

    Parameters
    ----------
    paths : sequence of Path
        Run directories, of finished or running runs.
    out : Path
        Where to write the report; made when all runs could be read and drawn.
    title : str
        Title of the report.

    Returns
    -------
    summaries : list of dict
        One for each run.
    files : list of Path
        What was written.
    """
    runs = load_runs(paths)
    pictures = figures(runs)
    content = {
        "title": title,
        "header": header(runs),
        "rows": rows(runs),
        "notes": notes(runs),
        "pictures": pictures,
        "answers": sections(runs),
        "settings": [(run.label, run.config.to_toml()) for run in runs],
    }
    files = {picture.name: picture.png for picture in pictures}
    files |= {page: _templates().get_template(f"{page}.j2").render(content).encode() for page in _PAGES}
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (out / name).write_bytes(data)
    return [run.summary for run in runs], [out / name for name in files]


@cache
def _templates() -> Environment:
    """Templates escape everything, except in Markdown; a missing name is an error, not an empty place."""
    made = Environment(
        loader=PackageLoader("lowkey.report"),
        autoescape=select_autoescape(disabled_extensions=("md.j2",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["base64"] = lambda data: base64.b64encode(data).decode()
    made.filters["cells"] = _cells
    return made


def _cells(texts: Sequence[str]) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |"
