"""What all pictures share: colours that the colour-blind can tell apart, and PNG."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")


def colour_of(number: int) -> str:
    """Of the run with this number, the same in every picture of a report."""
    return COLOURS[number % len(COLOURS)]


def new_figure(width: float, height: float) -> Figure:
    """In inches; needs no screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_png(figure: Figure) -> bytes:
    """The bytes of a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return picture.getvalue()
