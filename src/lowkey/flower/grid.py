"""``Ask`` over Flower's grid: the same requests that a simulation answers, carried to real nodes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping

from flwr.app import RecordDict
from flwr.serverapp import Grid

from lowkey.experiments import DeploymentSettings
from lowkey.federation import Adverts, Confirmations, Invite, Reply, Request, Scheme, Survivors
from lowkey.flower.exchange import exchange, one_line
from lowkey.flower.nodes import Nodes
from lowkey.flower.traffic import Traffic
from lowkey.flower.wire import read_reply, write_model, write_request
from lowkey.secagg import Delivery
from lowkey.timing import StageClock
from lowkey.types import ClientId

_log = logging.getLogger(__name__)
_STEPS: dict[type, str] = {Invite: "advertise", Adverts: "share", Survivors: "confirm", Confirmations: "reveal"}


class GridAsk:
    """Satisfies :class:`lowkey.protocols.Ask` with one message per client and request.

    A client that is offline, late, fails, or sends anything but the answer to its request has dropped out, whatever
    goes wrong when its answer is read; :mod:`lowkey.flower.wire` says what reading one may cost. The clock gets the
    seconds that the server waited in each step.

    Parameters
    ----------
    grid, nodes : Grid, Nodes
        Flower's grid, and which node is which client.
    scheme : Scheme
        What clients' vectors look like on the wire, and how many must be online before a round starts.
    waiting : DeploymentSettings
        How long each step may take.
    clock : StageClock
        Clock of the run.
    num_coordinates : int
        Size of the model.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Nodes,
        *,
        scheme: Scheme,
        waiting: DeploymentSettings,
        clock: StageClock,
        num_coordinates: int,
    ) -> None:
        self._grid, self._nodes, self._scheme = grid, nodes, scheme
        self._waiting, self._clock, self._size = waiting, clock, num_coordinates
        self._traffic = Traffic(model_bytes=4 * num_coordinates)
        self.take_figures = self._traffic.take

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        first = next(iter(requests.values()), None)
        if first is None:
            return
        step, scheme = _STEPS.get(type(first.message), "contribute"), self._scheme.at(first.round)
        wire = scheme.wire(self._size, first.round)
        opens = first.message is None or isinstance(first.message, Invite)
        began = time.perf_counter()
        if opens:
            there = self._nodes.gather(
                requests, min(scheme.privacy.min_survivors, len(requests)), self._waiting.gather_seconds
            )
            self._traffic.opened(len(requests))
        else:
            there = self._nodes.online()
        contents = self._contents({client: r for client, r in requests.items() if client in there}, there)
        for client in requests.keys() - there.keys():
            _log.warning("%s: client %s is offline", step, client)
        answers = exchange(
            self._grid,
            contents,
            kind="train.contribute" if step == "contribute" else "query.agree",
            group=f"{first.round}.{first.attempt}",
            seconds=self._waiting.train_seconds if step == "contribute" else self._waiting.agree_seconds,
            vector_bytes=wire.num_bytes if step == "contribute" else 0,
        )
        early: dict[ClientId, Reply] = {}
        order = [client for client in requests if client in contents]
        for client, content in answers:
            try:
                early[client] = read_reply(content, requests[client], wire)
            except Exception as error:  # whatever it is, it comes from what this node has sent
                _log.warning("%s: the answer of client %s is not used: %s", step, client, one_line(error))
                continue
            self._traffic.received(content)
            # in the order of the requests, however quick the nodes are: sums of floats depend on it
            while order and order[0] in early:
                self._clock.add({step: time.perf_counter() - began})
                yield order[0], early.pop(order.pop(0))
                began = time.perf_counter()
        self._clock.add({step: time.perf_counter() - began})
        yield from ((client, early[client]) for client in order if client in early)

    def _contents(
        self, requests: Mapping[ClientId, Request], there: Mapping[ClientId, int]
    ) -> dict[ClientId, tuple[int, RecordDict]]:
        """Node and message of each client that is online."""
        model, contents = None, {}
        for client, request in requests.items():
            if model is None and request.weights is not None:
                model = write_model(request.weights)
            content = write_request(request, None if request.weights is None else model)
            trains = request.message is None or isinstance(request.message, Delivery)
            self._traffic.sent(content, trains=trains)
            contents[client] = (there[client], content)
        return contents
