"""Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28×28 grey, 10 classes (Zalando SE, MIT licence).

Archives from different sources are compressed differently, so the checksums are those of the *decompressed* files.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowkey.errors import DataError
from lowkey.tasks.partition import Partition

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
DOWNLOAD = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
_HEADER = {"images": 16, "labels": 8}


@dataclass(frozen=True)
class ImageData:
    """Training and test images as bytes (N, 28, 28) and labels (N,)."""

    train_images: NDArray[np.uint8] = field(repr=False)
    train_labels: NDArray[np.uint8] = field(repr=False)
    test_images: NDArray[np.uint8] = field(repr=False)
    test_labels: NDArray[np.uint8] = field(repr=False)
    source: str

    def test(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return _examples(self.test_images, self.test_labels)


@dataclass(frozen=True)
class ImageClients:
    """Datasets of all clients, made on access: pixels stay bytes until a client is asked."""

    images: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.uint8] = field(repr=False)
    partition: Partition

    def __len__(self) -> int:
        return len(self.partition)

    def __getitem__(self, client: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        rows = self.partition[client]
        return _examples(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class RowClients:
    """Datasets of all clients whose features are computed already."""

    rows: NDArray[np.float32] = field(repr=False)
    labels: NDArray[np.uint8] = field(repr=False)
    partition: Partition

    def __len__(self) -> int:
        return len(self.partition)

    def __getitem__(self, client: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        rows = self.partition[client]
        return self.rows[rows], self.labels[rows].astype(np.int64)


def _examples(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Pixels in [0, 1] with a channel axis, and integer labels."""
    return (images[:, None].astype(np.float32) / np.float32(255)), labels.astype(np.int64)


def load_fashion_mnist(source: str | Path = "auto") -> ImageData:
    """Load the data and verify its checksums.

    Parameters
    ----------
    source : str or Path
        "auto" takes the cache directory, else Debian's package dataset-fashion-mnist, else downloads;
        "bundled" is the sample of 4,000 + 1,000 images inside this package; "download" fetches into the cache; anything
        else is a directory with the four IDX files, plain or gzipped.
    """
    if str(source) == "bundled":
        return _bundled()
    if str(source) == "auto":
        found = next((place for place in (_cache(), DEBIAN) if _complete(place)), None)
        return _directory(found) if found else _download(_cache(), DOWNLOAD)
    if str(source) == "download":
        return _download(_cache(), DOWNLOAD)
    return _directory(Path(source))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lowkey" / "fashion-mnist"


def _complete(directory: Path) -> bool:
    return all((directory / name).exists() or (directory / f"{name}.gz").exists() for name in SHA256)


def _directory(directory: Path) -> ImageData:
    parts = {name: _read(directory, name) for name in SHA256}
    return ImageData(
        _array(parts, "train-images-idx3-ubyte"),
        _array(parts, "train-labels-idx1-ubyte"),
        _array(parts, "t10k-images-idx3-ubyte"),
        _array(parts, "t10k-labels-idx1-ubyte"),
        source=str(directory),
    )


def _read(directory: Path, name: str) -> bytes:
    plain, packed = directory / name, directory / f"{name}.gz"
    path = plain if plain.exists() else packed
    try:
        data = path.read_bytes()
        if path == packed:
            data = gzip.decompress(data)
    except FileNotFoundError as error:
        raise DataError(
            f"{directory} has no {name} or {name}.gz; point data.source to a directory with the four Fashion-MNIST "
            "files, or install Debian's dataset-fashion-mnist, or use data.source=bundled for the small sample"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); fetch it again") from error
    _verify(name, data, str(path))
    return data


def _verify(name: str, data: bytes, origin: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256[name]:
        raise DataError(
            f"{origin} is damaged or another data set: sha256 of its content starts with {found[:12]}, not "
            f"{SHA256[name][:12]}; fetch it again"
        )


def _array(parts: dict[str, bytes], name: str) -> NDArray[np.uint8]:
    images = "images" in name
    flat = np.frombuffer(parts[name], np.uint8, offset=_HEADER["images" if images else "labels"])
    return flat.reshape(-1, 28, 28) if images else flat


def _download(directory: Path, base: str) -> ImageData:
    """Fetch missing files; a file appears under its name only after its checksum was verified."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in SHA256:
        if (directory / name).exists() or (directory / f"{name}.gz").exists():
            continue
        url = f"{base}/{name}.gz"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                packed = answer.read()
            data = gzip.decompress(packed)
        except (urllib.error.URLError, OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"cannot download Fashion-MNIST ({error}); install Debian's dataset-fashion-mnist, set data.source to "
                "a directory with the four files, or use data.source=bundled for the small sample"
            ) from error
        _verify(name, data, url)
        partial = directory / f"{name}.gz.part"
        partial.write_bytes(packed)
        partial.replace(directory / f"{name}.gz")
    return _directory(directory)


def _bundled() -> ImageData:
    sample = resources.files("lowkey.tasks.fashion_mnist").joinpath("sample", "fashion_mnist.npz")
    with sample.open("rb") as file, np.load(file) as parts:
        return ImageData(
            parts["train_images"], parts["train_labels"], parts["test_images"], parts["test_labels"], source="bundled"
        )
