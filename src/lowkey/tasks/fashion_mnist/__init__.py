"""Clothes in ten classes: the first task of the paper, 60,000 images divided among thousands of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lowkey import checks
from lowkey.lazy import late, lazy_names
from lowkey.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """The table ``[data]``.

    Parameters
    ----------
    source : str
        "auto", "bundled", "download", or a directory with the four files.
    division : {"iid", "dirichlet"}
        Who holds which images: at random, or with skewed classes.
    alpha : float
        Concentration of the "dirichlet" division; small means skewed.
    """

    source: str = "auto"
    division: Literal["iid", "dirichlet"] = "iid"
    alpha: float = 0.5

    def __post_init__(self) -> None:
        checks.one_of("data.division", self.division, ("iid", "dirichlet"))
        checks.positive("data.alpha", self.alpha)


@dataclass(frozen=True, kw_only=True)
class CNNSettings:
    """The table ``[model]``; by default the paper's network of 1,663,370 parameters.

    Parameters
    ----------
    filters : tuple of two int
        Number of filters of the two convolutions.
    hidden : int
        Units of the hidden layer.
    """

    filters: tuple[int, int] = (32, 64)
    hidden: int = 512

    def __post_init__(self) -> None:
        for count in (*self.filters, self.hidden):
            checks.at_least("model.filters and model.hidden", count, 1)


if TYPE_CHECKING:
    from lowkey.tasks.fashion_mnist.cnn import FashionCNN
    from lowkey.tasks.fashion_mnist.images import ImageClients, ImageData, load_fashion_mnist

__getattr__ = lazy_names(
    __name__, {"cnn": ("FashionCNN",), "images": ("ImageClients", "ImageData", "load_fashion_mnist")}
)
_PARTS = f"{__name__}.parts"

FASHION_MNIST = Task(
    model=late(_PARTS, "model"),
    clients=late(_PARTS, "clients"),
    test=late(_PARTS, "test"),
    data=ImageSettings,
    model_settings=CNNSettings,
    presets=__name__,
)

__all__ = [
    "FASHION_MNIST",
    "CNNSettings",
    "FashionCNN",
    "ImageClients",
    "ImageData",
    "ImageSettings",
    "load_fashion_mnist",
]
