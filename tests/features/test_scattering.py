"""Scattering: against the numbers of kymatio, and what it refuses.

``kymatio.npz`` was recorded by ``tools/record_scattering.py``, with kymatio 0.3.0, SciPy 1.14.1 and NumPy 1.26.4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lowkey.errors import InvalidInput
from lowkey.features import Scattering
from lowkey.types import FloatArray
from tools.record_scattering import CASES, STEP, image

RECORDED = Path(__file__).with_name("kymatio.npz")


@pytest.mark.parametrize("number", range(len(CASES)))
def test_numbers_are_those_of_kymatio(number: int) -> None:
    height, width, scales, angles, order = CASES[number]
    with np.load(RECORDED) as recorded:
        assert recorded["cases"][number].tolist() == list(CASES[number])
        expected, shape = recorded[f"values{number}"], recorded[f"shape{number}"]
    transform = Scattering(scales=scales, angles=angles, order=order)
    mapped = transform(image(number, height, width)[None])
    assert mapped.dtype == np.float32
    assert mapped.shape == (1, shape.prod())
    assert transform.channels == shape[0]
    np.testing.assert_allclose(mapped[0, ::STEP], expected, rtol=1e-5)


def images(*shape: int) -> FloatArray:
    return np.random.default_rng(0).random(shape, np.float32)


def test_28_by_28_pixels_become_3969_numbers() -> None:
    assert Scattering().width((28, 28)) == 3969
    assert Scattering().width((3, 28, 28)) == 3 * 3969
    assert Scattering().channels == 81


def test_a_constant_image_has_its_own_mean_and_no_waves() -> None:
    (mapped,) = Scattering()(np.full((1, 28, 28), 0.5, np.float32))
    np.testing.assert_allclose(mapped[:49], 0.5, rtol=1e-4)  # kymatio takes 3.1415 for π
    assert np.abs(mapped[49:]).max() < 1e-5


def test_more_images_than_fit_in_a_batch_are_the_same_images() -> None:
    many = images(120, 28, 28)
    mapped = Scattering()(many)
    for row in (0, 49, 50, 51, 119):
        np.testing.assert_allclose(mapped[row], Scattering()(many[row : row + 1])[0], atol=1e-6)


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        Scattering()(images(2, 28, 28))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_channels_and_flat_rows() -> None:
    colour = images(2, 3, 16, 12)
    apart = [Scattering()(colour[:, channel]) for channel in range(3)]
    np.testing.assert_allclose(Scattering()(colour), np.concatenate(apart, 1), atol=1e-6)
    np.testing.assert_array_equal(Scattering(image=(16, 12))(colour.reshape(2, -1)), Scattering()(colour))


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        ({}, (2, 3), r"2 × 3 is too small for scattering with 2 scales, which needs sides of at least 4"),
        ({}, (784,), r"flat rows of 784 numbers; set image"),
        ({}, (1, 1, 28, 28), r"images \(height, width\) or \(channels, height, width\), not \(1, 1, 28, 28\)"),
        ({"image": (28, 28)}, (32, 32), r"set to images of 28 × 28, and these have 32 × 32"),
        ({"image": (28, 28)}, (783,), r"28 × 28 = 784 numbers, and a row has 783"),
    ],
)
def test_images_of_a_wrong_size_are_refused(
    settings: dict[str, tuple[int, int]], shape: tuple[int, ...], message: str
) -> None:
    transform = Scattering(**settings)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        transform.width(shape)
    with pytest.raises(InvalidInput, match=message):
        transform(images(1, *shape))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scales": 0}, "scales is 0; it must be at least 1"),
        ({"angles": 2.5}, "angles is 2.5; it must be a whole number"),
        ({"order": 3}, "order is 3; it must be one of 1, 2"),
        ({"image": (28,)}, "a height and a width"),
        ({"image": (2, 2)}, "too small"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Scattering(**settings)  # type: ignore[arg-type]
