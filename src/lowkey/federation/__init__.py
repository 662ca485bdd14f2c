"""Rounds and runs: schemes, the client, and the flow of a round at the server."""

from lowkey.federation.aggregation import AGGREGATORS, Part, Rule, block_size
from lowkey.federation.client import Attendance, Client, explain
from lowkey.federation.records import (
    Adverts,
    ClientState,
    Confirmations,
    Invite,
    Reply,
    Request,
    Requests,
    RoundOutcome,
    RoundRecord,
    RunState,
    Survivors,
)
from lowkey.federation.round import drive, initial_state, released_model, round_flow
from lowkey.federation.rules import average_by_rule, rounds_by_rule, with_rate
from lowkey.federation.run import Federation, Schedule, StoppedBy, no_evaluation
from lowkey.federation.schemes import (
    FAMILIES,
    PARTS,
    SCHEMES,
    Scheme,
    is_private,
    require_fit,
    require_promise,
    scheme,
    usual_parts,
)

__all__ = [
    "AGGREGATORS",
    "FAMILIES",
    "PARTS",
    "SCHEMES",
    "Adverts",
    "Attendance",
    "Client",
    "ClientState",
    "Confirmations",
    "Federation",
    "Invite",
    "Part",
    "Reply",
    "Request",
    "Requests",
    "RoundOutcome",
    "RoundRecord",
    "Rule",
    "RunState",
    "Schedule",
    "Scheme",
    "StoppedBy",
    "Survivors",
    "average_by_rule",
    "block_size",
    "drive",
    "explain",
    "initial_state",
    "is_private",
    "no_evaluation",
    "released_model",
    "require_fit",
    "require_promise",
    "round_flow",
    "rounds_by_rule",
    "scheme",
    "usual_parts",
    "with_rate",
]
