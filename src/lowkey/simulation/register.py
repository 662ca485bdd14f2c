"""Who could not contribute: counted for the user to see, and a reason to stop when it is half of a cohort."""

from __future__ import annotations

from collections.abc import Sequence

from lowkey.errors import CannotContribute


class Register:
    """What simulated clients say about their training. At a real node it stays there; here the user should know."""

    def __init__(self) -> None:
        self._tried, self._excuses, self._excused_in_round = 0, list[str](), 0

    def begin(self) -> None:
        """New requests go out."""
        self._tried, self._excuses = 0, []

    def add(self, tried: int, excuses: Sequence[str]) -> None:
        """So many clients tried to train, and some of them could not contribute."""
        self._tried += tried
        self._excuses += excuses
        self._excused_in_round += len(excuses)

    def close(self) -> None:
        """All answers are in; called before anything is released."""
        if self._tried and 2 * len(self._excuses) >= self._tried:
            raise CannotContribute(
                f"{len(self._excuses)} of the {self._tried} clients that tried to train could not contribute, so that "
                f"the run has stopped; the last one because {self._excuses[-1]}"
            )

    def take(self) -> dict[str, int]:
        """For the metrics of a round: only where there is something to tell."""
        taken, self._excused_in_round = self._excused_in_round, 0
        return {"could_not_contribute": taken} if taken else {}
