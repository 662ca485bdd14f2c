"""Write the bundled sample: the same number of images of each class, drawn from Fashion-MNIST by a fixed seed.

python tools/make_sample.py [DIRECTORY_OF_FASHION_MNIST]
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowkey.tasks.fashion_mnist import load_fashion_mnist

TARGET = Path(__file__).parents[1] / "src" / "lowkey" / "tasks" / "fashion_mnist" / "sample" / "fashion_mnist.npz"


def balanced(
    images: NDArray[np.uint8], labels: NDArray[np.uint8], per_class: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rows = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in range(10)])
    rows = rng.permutation(rows)
    return images[rows], labels[rows]


data = load_fashion_mnist(sys.argv[1] if len(sys.argv) > 1 else "auto")
rng = np.random.default_rng(0)
train_images, train_labels = balanced(data.train_images, data.train_labels, 400, rng)
test_images, test_labels = balanced(data.test_images, data.test_labels, 100, rng)
np.savez_compressed(
    TARGET,
    train_images=train_images,
    train_labels=train_labels,
    test_images=test_images,
    test_labels=test_labels,
)
print(f"{TARGET}: {TARGET.stat().st_size / 1e6:.2f} MB")
