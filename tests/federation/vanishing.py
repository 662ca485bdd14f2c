"""Members that vanish in the middle of a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lowkey.federation import Adverts, Confirmations, Invite, Reply, Request, Survivors
from lowkey.secagg import Delivery
from lowkey.simulation import InProcess
from lowkey.types import ClientId

_STAGES = (Invite, Adverts, Delivery, Survivors, Confirmations)


class Vanishing:
    """A runtime in which some clients are gone for good from a stage of the round on.

    Parameters
    ----------
    ask : the runtime that carries what is left.
    stages : first stage, 0 to 4, that each client leaves unanswered: keys, shares, vector, confirmation, unmasking.
        Without secure aggregation there is the vector alone, stage 2.
    """

    def __init__(self, ask: InProcess, stages: Mapping[ClientId, int]) -> None:
        self._ask, self._stages = ask, stages

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        stage = max(map(_stage, requests.values()), default=0)
        yield from self._ask({c: r for c, r in requests.items() if self._stages.get(c, len(_STAGES)) > stage})


def _stage(request: Request) -> int:
    return 2 if request.message is None else _STAGES.index(type(request.message))
