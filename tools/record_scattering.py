"""Record kymatio's scattering of a few images, for tests/features/test_scattering.py.

kymatio 0.3.0 does not import with today's SciPy, so that this runs in an environment of its own:

    python -m venv old && old/bin/pip install kymatio==0.3.0 "scipy<1.15" "numpy<2"
    old/bin/python tools/record_scattering.py tests/features/kymatio.npz

Of every case it keeps the settings and every 41st number, in float32.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

CASES = ((28, 28, 2, 8, 2), (28, 28, 2, 8, 2), (32, 32, 2, 8, 2), (30, 21, 2, 4, 1), (32, 40, 3, 6, 2), (8, 9, 1, 8, 2))
"""Height, width, scales, angles and order; the number of a case is the seed of its image."""
STEP = 41


def image(seed: int, height: int, width: int) -> NDArray[np.float32]:
    """A pseudo-random image with numbers from 0 to 1, the same in every release of NumPy."""
    words = np.random.Philox(key=seed).random_raw(height * width)
    return (words >> np.uint64(40)).astype(np.float32).reshape(height, width) / np.float32(2**24)


def main(target: str) -> None:
    from kymatio.numpy import Scattering2D

    kept = {"cases": np.array(CASES)}
    for number, (height, width, scales, angles, order) in enumerate(CASES):
        transform = Scattering2D(J=scales, shape=(height, width), L=angles, max_order=order)
        values = transform(image(number, height, width))
        kept[f"shape{number}"] = np.array(values.shape)
        kept[f"values{number}"] = values.ravel()[::STEP].astype(np.float32)
    np.savez_compressed(target, **kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1])
