"""Bytes on the wire besides vectors and models: counted where they are ours, estimated where they are Flower's."""

from __future__ import annotations

from flwr.app import RecordDict

_CHUNK = 5 * 2**20  # Flower cuts arrays into pieces of this size
_REQUEST_UP, _REQUEST_DOWN = 1080, 170  # bytes of one HTTP request of a node and of its answer, with TLS, measured
_FIXED_REQUESTS = 3  # a message is found, its receipt confirmed, its answer announced; then one request for each object


def content_bytes(content: RecordDict) -> tuple[int, int]:
    """Bytes of the arrays, and of everything else that we put into a message."""
    arrays = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    rest = sum(
        len(value) if isinstance(value, (bytes, str)) else 8
        for record in content.config_records.values()
        for value in record.values()
    )
    return arrays, rest


class Traffic:
    """Counts what the members of a round send and receive, on average.

    ``protocol`` bytes are keys, shares, signatures and fields of messages, counted. ``transport`` bytes are Flower's
    own requests for these messages, estimated from their number: one per object of a message. An idle node asks every
    three seconds whether there is a message; that comes on top, and is not counted.

    Parameters
    ----------
    model_bytes : int
        Size of the model.

    Guarantees
    ----------
    The figures are the same however many members contribute: each counts as if it had been sent the model, and nothing
    here looks at a clock, since members that train answer later. They do depend on who drops out.
    """

    def __init__(self, *, model_bytes: int) -> None:
        self._model_objects = 1 + _array_objects(model_bytes)
        self._members, self._up, self._down, self._requests = 1, 0, 0, 0

    def opened(self, members: int) -> None:
        """Count the start of a round with this many members."""
        self._members = max(1, members)

    def sent(self, content: RecordDict, *, trains: bool) -> None:
        """Count a message to a node; ``trains`` in the step in which members contribute, or add noise only."""
        self._down += content_bytes(content)[1]
        self._requests += _FIXED_REQUESTS + _objects(content, arrays=False) + trains * self._model_objects

    def received(self, content: RecordDict) -> None:
        """Count an answer."""
        self._up += content_bytes(content)[1]
        self._requests += _objects(content)

    def take(self) -> dict[str, int]:
        """Figures since the last call, per member."""
        requests = self._requests / self._members
        taken = {
            "protocol_bytes_up_per_client": round(self._up / self._members),
            "protocol_bytes_down_per_client": round(self._down / self._members),
            "transport_bytes_up_per_client": round(requests * _REQUEST_UP),
            "transport_bytes_down_per_client": round(requests * _REQUEST_DOWN),
        }
        self._up, self._down, self._requests = 0, 0, 0
        return taken


def _objects(content: RecordDict, *, arrays: bool = True) -> int:
    """How many objects Flower makes of a message: itself, its content, each record, each array and its pieces."""
    count = 2 + len(content.config_records)
    if arrays:
        records = content.array_records.values()
        count += sum(1 + sum(_array_objects(len(array.data)) for array in record.values()) for record in records)
    return count


def _array_objects(size: int) -> int:
    return 1 + -(-size // _CHUNK)
