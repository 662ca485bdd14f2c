"""Fashion-MNIST: the network; loading the bundled sample, directories, downloads, and damage."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lowkey.errors import DataError
from lowkey.learning import model_vector
from lowkey.tasks.fashion_mnist import images
from lowkey.tasks.fashion_mnist.cnn import FashionCNN
from lowkey.tasks.fashion_mnist.images import ImageClients, load_fashion_mnist
from lowkey.tasks.partition import iid_shards

FILES = list(images.SHA256)


def idx(name: str) -> bytes:
    """A small file in the IDX layout."""
    rng = np.random.default_rng(len(name))
    pictures = "images" in name
    count = 20 if "train" in name else 10
    return (
        bytes(16 if pictures else 8) + rng.integers(0, 10, count * (784 if pictures else 1), dtype=np.uint8).tobytes()
    )


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The four files, two of them gzipped, with their checksums taken for the true ones."""
    place = tmp_path / "files"
    place.mkdir()
    for number, name in enumerate(FILES):
        content = idx(name)
        monkeypatch.setitem(images.SHA256, name, hashlib.sha256(content).hexdigest())
        if number % 2:
            (place / name).write_bytes(content)
        else:
            (place / f"{name}.gz").write_bytes(gzip.compress(content))
    return place


def test_the_papers_network_has_exactly_its_parameters() -> None:
    assert model_vector(FashionCNN()).size == 1_663_370


def test_bundled_sample() -> None:
    data = load_fashion_mnist("bundled")
    assert data.train_images.shape == (4000, 28, 28)
    assert np.bincount(data.train_labels).tolist() == [400] * 10
    assert np.bincount(data.test_labels).tolist() == [100] * 10
    inputs, targets = data.test()
    assert inputs.shape == (1000, 1, 28, 28)
    assert inputs.dtype == np.float32
    assert targets.dtype == np.int64
    assert inputs.min() == 0.0
    assert inputs.max() == 1.0


def test_directory_plain_or_gzipped(directory: Path) -> None:
    data = load_fashion_mnist(directory)
    assert data.train_images.shape == (20, 28, 28)
    assert data.test_labels.shape == (10,)


def test_missing_file_says_what_to_do(directory: Path) -> None:
    (directory / f"{FILES[0]}.gz").unlink()
    with pytest.raises(DataError, match="dataset-fashion-mnist"):
        load_fashion_mnist(directory)


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:100] + b"x" + b[101:], lambda b: b"not gzip"])
def test_damaged_file_is_refused_and_left_alone(directory: Path, damage: Callable[[bytes], bytes]) -> None:
    path = directory / f"{FILES[0]}.gz"
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    with pytest.raises(DataError, match="fetch it again"):
        load_fashion_mnist(directory)
    assert path.read_bytes() == broken


def test_another_data_set_is_refused(directory: Path) -> None:
    (directory / FILES[1]).write_bytes(idx(FILES[1])[::-1])
    with pytest.raises(DataError, match="another data set"):
        load_fashion_mnist(directory)


@pytest.fixture
def served(directory: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server with the gzipped files, and an empty cache."""
    web = tmp_path / "web"
    web.mkdir()
    for name in FILES:
        (web / f"{name}.gz").write_bytes(gzip.compress(idx(name)))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(web))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", web
    server.shutdown()
    server.server_close()


def test_download_keeps_only_verified_files(
    served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, web = served
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "DOWNLOAD", address)
    (web / f"{FILES[2]}.gz").write_bytes(gzip.compress(b"wrong"))
    with pytest.raises(DataError, match="fetch it again"):
        load_fashion_mnist("download")
    cache = tmp_path / "cache" / "lowkey" / "fashion-mnist"
    assert sorted(p.name for p in cache.iterdir()) == sorted(f"{name}.gz" for name in FILES[:2])
    (web / f"{FILES[2]}.gz").write_bytes(gzip.compress(idx(FILES[2])))
    assert load_fashion_mnist("download").train_images.shape == (20, 28, 28)
    assert load_fashion_mnist("auto").source == str(cache)


def test_no_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(images, "DOWNLOAD", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"data\.source=bundled"):
        load_fashion_mnist("download")


def test_clients_are_made_on_access() -> None:
    data = load_fashion_mnist("bundled")
    clients = ImageClients(data.train_images, data.train_labels, iid_shards(4000, 400, np.random.default_rng(0)))
    inputs, targets = clients[7]
    assert len(clients) == 400
    assert inputs.shape == (10, 1, 28, 28)
    rows = clients.partition[7]
    np.testing.assert_array_equal(targets, data.train_labels[rows])
