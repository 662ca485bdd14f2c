"""Bytes on the wire besides vectors and models: counted where they are ours, estimated where they are Flower's."""

from __future__ import annotations

import time

from flwr.app import RecordDict

_CHUNK = 5 * 2**20  # Flower cuts arrays into pieces of this size
_REQUEST_UP, _REQUEST_DOWN = 1080, 170  # bytes of one HTTP request of a node and of its answer, with TLS, measured
_FIXED_REQUESTS = 3  # a message is found, its receipt confirmed, its answer announced; then one request for each object
_POLL_SECONDS = 3.0  # how often an idle node asks whether there is a message
_HEARTBEAT_SECONDS = 30.0


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
    own requests, estimated from their number: one per object of a message, and one each few seconds of an idle node.
    The benchmark of the Flower runtime compares the sum of all with what a relay counts.
    """

    def __init__(self) -> None:
        self._began, self._members = time.monotonic(), 1
        self._up, self._down, self._requests, self._busy = 0, 0, 0.0, 0.0

    def opened(self, members: int) -> None:
        """Count the start of a round with this many members."""
        self._members = max(1, members)

    def sent(self, content: RecordDict) -> None:
        """Count a message to a node."""
        self._down += content_bytes(content)[1]
        self._requests += _FIXED_REQUESTS + _objects(content)

    def received(self, content: RecordDict, seconds: float) -> None:
        """Count an answer, with the seconds since its message was sent; a node that works does not poll."""
        self._up += content_bytes(content)[1]
        self._requests += _objects(content)
        self._busy += max(0.0, seconds - _POLL_SECONDS / 2)

    def take(self) -> dict[str, int]:
        """Figures since the last call, per member."""
        now = time.monotonic()
        seconds = now - self._began
        idle = max(0.0, seconds - self._busy / self._members)
        requests = self._requests / self._members + idle / _POLL_SECONDS + seconds / _HEARTBEAT_SECONDS
        taken = {
            "protocol_bytes_up_per_client": round(self._up / self._members),
            "protocol_bytes_down_per_client": round(self._down / self._members),
            "transport_bytes_up_per_client": round(requests * _REQUEST_UP),
            "transport_bytes_down_per_client": round(requests * _REQUEST_DOWN),
        }
        self._began, self._up, self._down, self._requests, self._busy = now, 0, 0, 0.0, 0.0
        return taken


def _objects(content: RecordDict) -> int:
    """How many objects Flower makes of a message: itself, its content, each record, each array and its pieces."""
    arrays = [array for record in content.array_records.values() for array in record.values()]
    return 2 + len(content) + sum(1 + -(-len(array.data) // _CHUNK) for array in arrays)
