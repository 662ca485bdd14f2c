"""How the vectors of a cohort become one mean: openly, as a plain sum of integers, or under secure aggregation.

Each way is a part of a round's flow, a generator that yields requests by client and is sent the replies. The two
private ones give the same bits: masks cancel.
"""

from lowkey.federation.aggregation.attempt import Aggregator, Attempt, Outcome, Replies
from lowkey.federation.aggregation.masked import masked_mean
from lowkey.federation.aggregation.open import open_mean
from lowkey.federation.aggregation.plain import plain_mean
from lowkey.federation.aggregation.sums import Part, Rule, block_size, singly
from lowkey.federation.records import Requests
from lowkey.registry import Registry

AGGREGATORS: Registry[Aggregator] = Registry(
    "privacy.aggregation", {"open": open_mean, "plain": plain_mean, "masked": masked_mean}
)

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "Attempt",
    "Outcome",
    "Part",
    "Replies",
    "Requests",
    "Rule",
    "block_size",
    "singly",
]
