"""Identity keys of simulated clients: one secret, from which each key is derived when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lowkey.rng import Secrets
from lowkey.secagg import Identity
from lowkey.types import ClientId

_ROOT_WORDS = 4


class SimulatedKeys(Mapping[ClientId, bytes]):
    """Satisfies :class:`lowkey.protocols.Keys` for all clients of a simulation; it is its own ``verify_keys``."""

    def __init__(self, population: int, secrets: Secrets) -> None:
        self._population = population
        self._root = secrets.source("identities").bits(_ROOT_WORDS).tobytes()

    @property
    def verify_keys(self) -> Mapping[ClientId, bytes]:
        return self

    def identity(self, client: ClientId) -> Identity:
        return _identity(self._root, client)

    def __getitem__(self, client: ClientId) -> bytes:
        if not 0 <= client < self._population:
            raise KeyError(client)
        return self.identity(client).verify_key

    def __iter__(self) -> Iterator[ClientId]:
        return iter(range(self._population))

    def __len__(self) -> int:
        return self._population


@lru_cache(maxsize=2**14)
def _identity(root: bytes, client: ClientId) -> Identity:
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=client.to_bytes(4, "big")).derive(root)
    return Identity(client=client, signing_key=key)
