"""Writing a report: Markdown, pictures, and one HTML page with everything inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lowkey.report.figures import Picture, figures
from lowkey.report.tables import RunData, header, load_runs, notes, rows

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 68rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.2rem 0; } img { max-width: 100%; background: white; border-radius: 6px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
.pictures .wide { grid-column: 1 / -1; }
li { margin: .35rem 0; }
pre { overflow-x: auto; font-size: .82rem; padding: .8rem; background: #8881; border-radius: 6px; }
summary { cursor: pointer; }
"""


def write_report(paths: Sequence[Path], out: Path, *, title: str) -> tuple[list[dict[str, Any]], list[Path]]:
    """Compare runs in ``out``; returns the summaries of the runs and the files written."""
    runs = load_runs(paths)
    pictures = figures(runs)
    out.mkdir(parents=True, exist_ok=True)
    contents = {picture.name: picture.png for picture in pictures}
    contents["report.md"] = _markdown(runs, pictures, title).encode()
    contents["report.html"] = _html(runs, pictures, title).encode()
    for name, content in contents.items():
        (out / name).write_bytes(content)
    return [run.summary for run in runs], [out / name for name in contents]


def _markdown(runs: Sequence[RunData], pictures: Sequence[Picture], title: str) -> str:
    names = header(runs)
    ruler = ["---"] + ["---:"] * (len(names) - 1)
    lines = [f"# {title}", "", _line(names), _line(ruler), *map(_line, rows(runs)), ""]
    lines += [f"- {note}" for note in notes(runs)]
    for picture in pictures:
        lines += ["", f"![{picture.title}]({picture.name})"]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _image(picture: Picture) -> str:
    place = ' class="wide"' if picture.wide else ""
    data = base64.b64encode(picture.png).decode()
    return f'<figure{place}><img alt="{picture.title}" src="data:image/png;base64,{data}"></figure>'


def _html(runs: Sequence[RunData], pictures: Sequence[Picture], title: str) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header(runs))
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(runs))
    remarks = "".join(f"<li>{html.escape(note)}</li>" for note in notes(runs))
    images = "".join(map(_image, pictures))
    settings = "".join(
        f"<details><summary>{html.escape(run.label)}</summary><pre>{html.escape(run.config.to_toml())}</pre></details>"
        for run in runs
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f'<h2>Pictures</h2><div class="pictures">{images}</div>'
        f"<h2>How to read this</h2><ul>{remarks}</ul><h2>Settings</h2>{settings}</html>\n"
    )
