"""What the server does with the mean of a round: gather in the compressed domain, step the model, average."""

from lowkey.registry import Registry
from lowkey.server.averages import ExponentialAverage, LastIterate, TailAverage
from lowkey.server.gather import DecodeMean, ErrorFeedback
from lowkey.server.optimisers import Adam, Momentum, Plain
from lowkey.server.parts import Averaging, Decode, Gather, Gathered, Optimiser, State

GATHERS: Registry[type[Gather]] = Registry("gather.kind", {"decode": DecodeMean, "error-feedback": ErrorFeedback})
OPTIMISERS: Registry[type[Optimiser]] = Registry(
    "server.optimiser", {"plain": Plain, "momentum": Momentum, "adam": Adam}
)
AVERAGES: Registry[type[Averaging]] = Registry(
    "averaging.kind", {"last": LastIterate, "exponential": ExponentialAverage, "tail": TailAverage}
)

__all__ = [
    "AVERAGES",
    "GATHERS",
    "OPTIMISERS",
    "Adam",
    "Averaging",
    "Decode",
    "DecodeMean",
    "ErrorFeedback",
    "ExponentialAverage",
    "Gather",
    "Gathered",
    "LastIterate",
    "Momentum",
    "Optimiser",
    "Plain",
    "State",
    "TailAverage",
]
