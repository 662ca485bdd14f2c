"""One cheap release beside training, and a hospital's limit is gone without a word.

A hospital trains with much noise, and once answers a question with little, which its policy allows. Its own ledger
counted every past round at the least noise of all: ε came out more than twice too large, the node sent zeros from then
on, and nothing told its owner.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from lowkey.deployment import read_status
from lowkey.privacy import ClientLedger, Event, Policy, Terms, server_epsilon, server_view
from tests.attacks.asking_nodes import SMALL
from tests.flower.loopback import PRIVATE, Setting

DEFENDS = (
    "A client's own ε composes all that it took part in, each release with its own noise and coin; a node beyond one "
    "of its limits sends zeros with noise, and says so, with the limit, in its own log and status.json."
)
DELTA, ROUNDS = 1e-5, 20
TRAINING = Terms(
    noise_multiplier=4.0, clip_rule="norm at most 0.5", bits=20, length=100, members=10, min_survivors=9, honest=8,
    neighbours=9, shares_needed=6, delta=DELTA, scheme="fl-cs-dp", sampling="all", codec="dct", public_seed=0,
    model_size=500,
)  # fmt: skip
POLICY = Policy(
    min_noise_multiplier=1.0, min_roster=10, min_honest=8, min_tolerated_colluders=1, max_participations=1000,
    max_epsilon=8.0, delta=DELTA,
)  # fmt: skip


def test_a_cheap_release_costs_what_it_costs() -> None:
    ledger = ClientLedger(None)
    ledger.join("study/1", 1, 0, noise_multiplier=1.0)
    for number in range(1, ROUNDS):
        ledger.join("study/2", number, 0, noise_multiplier=4.0)
    true = server_view(
        [
            Event(noise_multiplier=1.0, sampling_probability=1.0),
            Event(noise_multiplier=4.0, sampling_probability=1.0, count=ROUNDS),
        ],
        DELTA,
    )
    assert true < POLICY.max_epsilon < server_epsilon(1.0, ROUNDS + 1, DELTA) / 3  # what was counted before
    assert POLICY.limit_reached(ledger, TRAINING) is None
    tight = replace(POLICY, max_epsilon=true - 0.01)
    assert tight.limit_reached(ledger, TRAINING) is not None


def test_coins_and_noise_of_many_kinds_compose_quickly() -> None:
    ledger = ClientLedger(None)
    for number in range(1, 2001):
        ledger.join(f"study/{number % 7}", number, 0, noise_multiplier=4.0 + number % 3, coin=(1.0, 0.1)[number % 2])
    began = time.perf_counter()
    assert POLICY.limit_reached(ledger, TRAINING) is not None
    assert replace(POLICY, max_epsilon=200.0, max_participations=3000).limit_reached(ledger, TRAINING) is None
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("whose", ["the app's", "the hospital's"])
def test_a_node_beyond_its_limit_says_so_to_its_owner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, whose: str
) -> None:
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], "privacy.max_contributions=1", *SMALL], rounds=2)
    home = setting.home / "nodes/0001"
    if whose == "the hospital's":
        setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], "privacy.max_contributions=9", *SMALL], rounds=2)
        policy = home / "policy.toml"
        policy.write_text(policy.read_text().replace("max_participations = 9", "max_participations = 1"))
    setting.serve()
    status = read_status(home)
    assert (status["round"], status["contributed"]) == (2, False)
    assert ("policy.toml" if whose == "the hospital's" else "privacy.max_contributions") in status["reason"]
    assert "limit" in caplog.text
