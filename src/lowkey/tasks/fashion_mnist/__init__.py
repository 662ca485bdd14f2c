"""Clothes in ten classes: the first task of the paper, 60,000 images divided among thousands of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lowkey import checks
from lowkey.lazy import late, lazy_names
from lowkey.tasks.task import Task

SCATTERED = 3969
"""Numbers that the scattering makes of an image: 81 channels of 7 × 7."""


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
class ImageModelSettings:
    """The table ``[model]``; by default the paper's network of 1,663,370 parameters.

    Parameters
    ----------
    kind : {"cnn", "head"}
        The paper's network, or softmax regression with a centre on public features: scattering, normalised in 27
        groups, projected.
    filters : tuple of two int
        Of the network: number of filters of the two convolutions.
    hidden : int
        Of the network: units of the hidden layer.
    features : int
        Of the head: how many numbers the 3,969 of the scattering are projected to; 3,969 projects nothing.
    """

    kind: Literal["cnn", "head"] = "cnn"
    filters: tuple[int, int] = (32, 64)
    hidden: int = 512
    features: int = 1500

    def __post_init__(self) -> None:
        checks.one_of("model.kind", self.kind, ("cnn", "head"))
        checks.at_least("model.features", self.features, 1)
        checks.positive("model.features", self.features, most=SCATTERED)
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
    local_data=late(_PARTS, "local_data"),
    test=late(_PARTS, "test"),
    features=late(f"{__name__}.maps", "features"),
    data=ImageSettings,
    model_settings=ImageModelSettings,
    presets=__name__,
)

__all__ = [
    "FASHION_MNIST",
    "FashionCNN",
    "ImageClients",
    "ImageData",
    "ImageModelSettings",
    "ImageSettings",
    "load_fashion_mnist",
]
