"""The arithmetic of scattering: Morlet wavelets, and convolutions by PyTorch's FFT.

Filters and conventions are those of kymatio (its constant 3.1415 included), so that numbers can be compared with other
work. What differs is the order of the arithmetic: the smoothing filter is a product of a row and a column, so that
smoothing, subsampling and cropping are one small matrix on each side of an image.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lowkey.types import FloatArray

_PIXELS = 1 << 16
"""Pixels of the images that go together; the largest arrays have some hundred bytes for each."""


class _Filters(NamedTuple):
    """What an image size needs: ``waves[j][level]`` (angles, height, width) in the Fourier domain, folded and scaled so
    that a sum over folds subsamples; ``smooth[level]``, the matrices of the two sides of an image."""

    waves: list[list[Tensor]]
    smooth: list[tuple[Tensor, Tensor]]


def scatter(images: FloatArray, scales: int, angles: int, order: int) -> FloatArray:
    """Scattering coefficients (n, channels, height / 2^J, width / 2^J) of images (n, height, width)."""
    height, width = images.shape[1:]
    sides = [_padded(side, scales) for side in (height, width)]
    margins = [((to - side) // 2, (to - side + 1) // 2) for side, to in zip((height, width), sides, strict=True)]
    filters = _filters(sides[0], sides[1], scales, angles)
    step = max(1, _PIXELS // (sides[0] * sides[1]))
    parts = []
    with torch.inference_mode(), _one_thread():
        for start in range(0, len(images), step):
            padded = np.pad(images[start : start + step], [(0, 0), *margins], mode="reflect")
            parts.append(_scatter(torch.from_numpy(padded), filters, order).numpy())
    return np.concatenate(parts)


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch on one thread: with arrays as small as these, two took 19 times as long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _scatter(images: Tensor, filters: _Filters, order: int) -> Tensor:
    """The coefficients of a few padded images: smoothed images, then |x ⋆ ψ₁| and ||x ⋆ ψ₁| ⋆ ψ₂| smoothed."""
    spectrum = torch.fft.fft2(images)[:, None]
    first, second = [_smooth(images, filters, 0)[:, None]], []
    for j1, waves in enumerate(filters.waves):
        moduli = _modulus(spectrum, waves[0], 1 << j1)
        first.append(_smooth(moduli, filters, j1))
        later = filters.waves[j1 + 1 :] if order == 2 else []
        if later:
            spectra = torch.fft.fft2(moduli)[:, :, None]
            paths = [
                _smooth(_modulus(spectra, coarser[j1], 1 << (j2 - j1)), filters, j2)
                for j2, coarser in enumerate(later, start=j1 + 1)
            ]
            second.append(torch.cat(paths, 2).flatten(1, 2))
    return torch.cat([*first, *second], 1)


def _modulus(spectrum: Tensor, waves: Tensor, step: int) -> Tensor:
    """|x ⋆ ψ| for each wave, every ``step``-th pixel: subsampling an image folds its spectrum."""
    height, width = spectrum.shape[-2] // step, spectrum.shape[-1] // step
    tops, lefts = range(0, spectrum.shape[-2], height), range(0, spectrum.shape[-1], width)
    parts = [(..., slice(top, top + height), slice(left, left + width)) for top in tops for left in lefts]
    folded = spectrum[parts[0]] * waves[parts[0]]
    for part in parts[1:]:
        folded += spectrum[part] * waves[part]
    moduli: Tensor = torch.fft.ifft2(folded).abs()
    return moduli


def _smooth(images: Tensor, filters: _Filters, level: int) -> Tensor:
    rows, columns = filters.smooth[level]
    return rows @ images @ columns.T


def _padded(side: int, scales: int) -> int:
    return (((side + (1 << scales)) >> scales) + 1) << scales


@lru_cache(maxsize=4)
def _filters(height: int, width: int, scales: int, angles: int) -> _Filters:
    waves: list[list[Tensor]] = []
    for j in range(scales):
        turns = [(int(angles - angles / 2 - 1) - number) * np.pi / angles for number in range(angles)]
        full = np.stack([_morlet(height, width, 0.8 * 2**j, turn, 0.75 * np.pi / 2**j, 4.0 / angles) for turn in turns])
        # subsampling takes the mean over folds, here a sum: at a level, waves of scale j are folded 2^(j - level) times
        waves.append([_tensor(_lowered(full, level) / 4.0 ** (j - level)) for level in range(max(j, 1))])
    smooth = [(_smoothing(height, level, scales), _smoothing(width, level, scales)) for level in range(scales)]
    return _Filters(waves, smooth)


def _tensor(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))


def _gabor(
    height: int, width: int, sigma: float, turn: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """A wave under a Gaussian that is ``slant`` times wider across, on a torus; Andreux et al. (2020), Sec. 2."""
    y = np.arange(-2 * height, 3 * height)[:, None]
    x = np.arange(-2 * width, 3 * width)[None, :]
    along, across = np.cos(turn) * y + np.sin(turn) * x, np.cos(turn) * x - np.sin(turn) * y
    wave = np.exp(-(along**2 + slant**2 * across**2) / (2 * sigma**2) + 1j * frequency * along)
    around = wave.reshape(5, height, 5, width).sum((0, 2)) / (2 * 3.1415 * sigma**2 / slant)
    return np.asarray(around, np.complex128)


def _morlet(height: int, width: int, sigma: float, turn: float, frequency: float, slant: float) -> NDArray[np.float64]:
    """The spectrum, which is real, of a Gabor wave without its mean."""
    wave, envelope = (_gabor(height, width, sigma, turn, xi, slant) for xi in (frequency, 0.0))
    return np.fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real


def _lowered(spectra: NDArray[np.float64], level: int, axes: int = 2) -> NDArray[np.float64]:
    """Spectra (..., sides) of filters for images 2^level times smaller: only the low frequencies are kept."""
    for axis in range(-axes, 0):
        keep = spectra.shape[axis] >> (level + 1)
        spectra = np.concatenate(
            [
                spectra.take(range(keep), axis),
                spectra.take(range(spectra.shape[axis] - keep, spectra.shape[axis]), axis),
            ],
            axis,
        )
    return spectra


def _smoothing(side: int, level: int, scales: int) -> Tensor:
    """The matrix that smooths a side of an image at a level, keeps every 2^(J - level)-th pixel, drops the margins."""
    sigma, at = 0.8 * 2 ** (scales - 1), np.arange(-2 * side, 3 * side)
    window = np.exp(-(at**2) / (2 * sigma**2)).reshape(5, side).sum(0) / np.sqrt(2 * 3.1415 * sigma**2)
    spectrum = _lowered(np.fft.fft(window).real, level, axes=1)
    response = np.fft.ifft(spectrum[:, None] * np.fft.fft(np.eye(len(spectrum)), axis=0), axis=0).real
    return _tensor(response[:: 1 << (scales - level)][1:-1])
