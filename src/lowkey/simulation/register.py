"""Counts the clients that could not contribute, so that the user sees it; stops the run at half of a cohort."""

from __future__ import annotations

from collections.abc import Sequence

from lowkey.errors import CannotContribute


class Register:
    """What simulated clients report about their training. A real node keeps this to itself; here the user sees it."""

    def __init__(self) -> None:
        self._tried, self._excuses, self._excused_in_round = 0, list[str](), 0

    def begin(self) -> None:
        """Start counting: new requests go out."""
        self._tried, self._excuses = 0, []

    def add(self, tried: int, excuses: Sequence[str]) -> None:
        """Count clients that tried to train, and the reasons of those that could not contribute."""
        self._tried += tried
        self._excuses += excuses
        self._excused_in_round += len(excuses)

    def close(self) -> None:
        """Stop the run if half of the clients could not contribute; call it before anything is released."""
        if self._tried and 2 * len(self._excuses) >= self._tried:
            raise CannotContribute(
                f"{len(self._excuses)} of the {self._tried} clients that tried to train could not contribute, so "
                f"the run has stopped; reason of the last one: {self._excuses[-1]}"
            )

    def take(self) -> dict[str, int]:
        """The figure for the metrics of a round; empty if all clients could contribute."""
        taken, self._excused_in_round = self._excused_in_round, 0
        return {"could_not_contribute": taken} if taken else {}
