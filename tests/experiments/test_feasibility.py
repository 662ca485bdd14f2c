"""What is said before the first round of a private run."""

from __future__ import annotations

import pytest

from lowkey.experiments import load_config, prospects
from lowkey.figures import human_epsilon
from lowkey.privacy import server_epsilon

SMALL = ["federation.clients=40", "federation.cohort=40", "schedule.rounds=40"]


def lines(*changes: str) -> list[str]:
    told = prospects(load_config("demo/fl-cs-dp", [*SMALL, *changes]), 1000)
    assert told is not None
    return told.splitlines()


def test_the_first_line_tells_the_price_of_spare_attempts_and_epsilon_at_the_limit() -> None:
    price, signal = lines("privacy.epsilon=8")
    noise = load_config("demo/fl-cs-dp", [*SMALL, "privacy.epsilon=8"]).scheme().privacy.event()
    assert noise is not None
    alone, limit = (human_epsilon(server_epsilon(noise.noise_multiplier, n, 1e-5)) for n in (40, 42))
    assert price == (
        f"noise {noise.noise_multiplier:.4f}: ε {alone} after 40 rounds, {limit} if 2 spare attempts are needed; "
        f"{limit} for the server, about a client that reaches its limit of 42"
    )
    assert float(alone) < float(limit) <= 8.0
    assert signal.startswith(("feasible", "doubtful"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["privacy.spare_attempts=1"], "if 1 spare attempt is needed; "),
        (["privacy.spare_attempts=0"], "after 40 rounds; "),
        (["privacy.max_contributions=unlimited"], "; clients have no limit, so ε for the server grows"),
        (["privacy.max_contributions=5"], "reaches its limit of 5, as all do before the last round"),
        (["privacy.max_contributions=40"], "reaches its limit of 40"),
    ],
)
def test_other_choices(changes: list[str], told: str) -> None:
    price = lines("privacy.noise_multiplier=5.0", "privacy.epsilon=90", *changes)[0]
    assert told in price
    assert price.startswith("noise 5.0000: ε ")
    assert ("before the last round" in price) == ("=5" in changes[0])


def test_schemes_without_privacy_have_nothing_to_say() -> None:
    assert prospects(load_config("demo/fl-cs"), 1000) is None
