"""What all pictures have in common: colours that the colour-blind can tell apart, and PNG."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")


@dataclass(frozen=True)
class Picture:
    """A picture of the report.

    Attributes
    ----------
    name : str
        Name of its file, such as "calibration.png".
    title : str
        What it shows, in words.
    png : bytes
        Content of the file.
    wide : bool
        Whether it fills the whole width of the page.
    """

    name: str
    title: str
    png: bytes = field(repr=False)
    wide: bool = False


def colour_of(number: int) -> str:
    """Return the colour of the run with this number; it is the same in every picture of a report."""
    return COLOURS[number % len(COLOURS)]


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure that needs no screen.

    Parameters
    ----------
    width, height : float
        Size in inches.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_png(figure: Figure) -> bytes:
    """Return the bytes of a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return picture.getvalue()
