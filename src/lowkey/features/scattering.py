"""Scattering of images: what a small convolutional network with wavelets for weights would see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.features.maps import BlockMap, Shape
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Scattering(BlockMap):
    """Moduli of wavelet transforms, smoothed: features that move little when an image moves or bends a little.

    The numbers are those of kymatio's ``Scattering2D`` with its usual filters. A channel of an image of 28 × 28 becomes
    81 channels of 7 × 7 numbers.

    Parameters
    ----------
    scales : int
        J, octaves of wavelets; the result is 2^J times smaller in height and width.
    angles : int
        L, directions of the wavelets.
    order : int
        1 or 2: how many wavelet transforms come one after the other.
    image : tuple of int, optional
        Height and width. With them, flat rows are read as images of this size, and images of another size are refused;
        without, rows must have the shape (height, width) or (channels, height, width).

    References
    ----------
    Bruna and Mallat (2013), *Invariant Scattering Convolution Networks*; Andreux et al. (2020), *Kymatio: Scattering
    Transforms in Python*.
    """

    kind: ClassVar[str] = "scattering"
    scales: int = 2
    angles: int = 8
    order: int = 2
    image: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        checks.at_least("scattering: scales", self.scales, 1)
        checks.at_least("scattering: angles", self.angles, 1)
        checks.one_of("scattering: order", self.order, (1, 2))
        if self.image is not None:
            object.__setattr__(self, "image", tuple(self.image))
            if len(self.image) != 2:
                raise InvalidInput(f"scattering: image is {self.image}; it must be a height and a width")
            self._require_large(self.image)

    @property
    def channels(self) -> int:
        """How many channels become of one: 1 + L·J + L²·J·(J − 1)/2 for order 2."""
        second = self.angles**2 * self.scales * (self.scales - 1) // 2 if self.order == 2 else 0
        return 1 + self.angles * self.scales + second

    def width(self, inputs: Shape) -> int:
        channels, height, width = self._axes(inputs)
        return channels * self.channels * (height >> self.scales) * (width >> self.scales)

    def _block(self, rows: FloatArray) -> FloatArray:
        from lowkey.features.wavelets import scatter

        channels, height, width = self._axes(rows.shape[1:])
        images = rows.reshape(len(rows) * channels, height, width)
        return scatter(images, self.scales, self.angles, self.order).reshape(len(rows), -1)

    def _axes(self, inputs: Shape) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        shape = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(shape) == 1:
            return self._axes_of_flat_rows(shape[0])
        if len(shape) not in (2, 3) or min(shape) < 1:
            raise InvalidInput(f"scattering takes images (height, width) or (channels, height, width), not {shape}")
        channels, height, width = shape if len(shape) == 3 else (1, *shape)
        if self.image is not None and (height, width) != self.image:
            raise InvalidInput(
                f"scattering is set to images of {self.image[0]} × {self.image[1]}, and these have {height} × {width}; "
                "crop or pad them, or change its setting image"
            )
        self._require_large((height, width))
        return channels, height, width

    def _axes_of_flat_rows(self, numbers: int) -> tuple[int, int, int]:
        if self.image is None:
            raise InvalidInput(
                f"scattering got flat rows of {numbers} numbers; set image = (height, width), or pass images"
            )
        pixels = self.image[0] * self.image[1]
        if numbers < 1 or numbers % pixels:
            raise InvalidInput(
                f"scattering is set to images of {self.image[0]} × {self.image[1]} = {pixels} numbers, and a row has "
                f"{numbers}"
            )
        return numbers // pixels, *self.image

    def _require_large(self, image: tuple[int, int]) -> None:
        for side in image:
            checks.at_least("scattering: a side of an image", side, 1)
        if min(image) < 1 << self.scales:
            raise InvalidInput(
                f"an image of {image[0]} × {image[1]} is too small for scattering with {self.scales} scales, which "
                f"needs sides of at least {1 << self.scales}; use fewer scales"
            )
