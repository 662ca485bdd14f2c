"""The round and the run: schemes, client, server flow."""

from lowkey.federation.client import Client
from lowkey.federation.records import (
    ClientState,
    Reply,
    Request,
    RoundOutcome,
    RoundRecord,
    RunState,
)
from lowkey.federation.round import drive, initial_state, round_flow
from lowkey.federation.run import Federation, Schedule, StoppedBy
from lowkey.federation.schemes import SCHEMES, Scheme, make_scheme

__all__ = [
    "SCHEMES",
    "Client",
    "ClientState",
    "Federation",
    "Reply",
    "Request",
    "RoundOutcome",
    "RoundRecord",
    "RunState",
    "Schedule",
    "Scheme",
    "StoppedBy",
    "drive",
    "initial_state",
    "make_scheme",
    "round_flow",
]
