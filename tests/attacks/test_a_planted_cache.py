"""Somebody who can write one file of a cache runs code at a hospital's node.

Numba keeps what it has compiled on disk and reads it back by pickle, which runs whatever the file says. The guard lets
a node run approved apps only, but the noise of every round is drawn by compiled loops: a file that another program or
an earlier, broader set of rights had left in ``NUMBA_CACHE_DIR`` was code that the node ran, with data and keys in it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

DEFENDS = "A node runs no compiled code from a cache on disk that it has not written itself since its executor started."

NOISE = """
from lowkey.privacy import Encoding
from lowkey.rng import OSSecrets

encoding = Encoding(length=4, members=3, honest=3, noise_multiplier=1.0)
print(encoding.add_noise(encoding.zeros(), OSSecrets().source("noise")).value.size)
"""
AT_THE_NODE = f"""
from types import SimpleNamespace
from lowkey.deployment import guard

def app():
    exec({NOISE!r})

flower = SimpleNamespace(install_from_fab=None, get_load_client_app_fn=None)
guard.import_flower = lambda: (flower, SimpleNamespace(flwr_clientapp=app))
guard.main()
"""


class Planted:
    """A pickle that makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


def run(code: str, cache: Path, approved: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "LOWKEY_APPROVED_APPS": str(approved)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout.strip() == "4", done.stderr


def test_a_planted_cache_does_nothing_at_a_node(tmp_path: Path) -> None:
    cache, booty = tmp_path / "numba", tmp_path / "booty"
    run(NOISE, cache, tmp_path)
    indices = list(cache.rglob("*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(pickle.dumps(Planted(booty)))
    run(AT_THE_NODE, cache, tmp_path)
    assert not booty.exists()
