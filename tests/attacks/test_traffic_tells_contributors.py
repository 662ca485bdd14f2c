"""A reader of published metrics learns how many clients contributed to each round.

The attacker sees ``metrics.jsonl`` and nothing else. With Poisson sampling the number of clients whose data is in a
round is secret: members that were not drawn add noise to zeros, so that nobody can tell. But contributors get the model
and the others do not, so Flower makes more requests for them, and works longer. Until now both were in the average that
the metrics call ``transport_bytes_up_per_client``: it went up by some hundred bytes with every contributor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.app import Message

from lowkey.experiments import RunDirectory
from lowkey.flower.node import REPLAY_VARIABLE
from tests.flower.loopback import PRIVATE, Setting

DEFENDS = "The bytes in metrics.jsonl do not depend on how many members contributed data."

ROUNDS = 6


def test_bytes_in_the_metrics_do_not_follow_the_number_of_contributors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPLAY_VARIABLE, "7")
    preset, changes = PRIVATE
    setting = Setting(tmp_path, preset, [*changes, "federation.cohort=3"], nodes=6, rounds=ROUNDS)
    contributors: Counter[int] = Counter()

    def count(_client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        if "model" in message.content:  # what only the server and the contributor itself should know
            contributors[int(message.content["request"]["round"])] += 1  # type: ignore[arg-type]
        return [handle()]

    setting.grid.fault = count
    setting.serve()
    lines = RunDirectory.open(setting.out).metrics()
    assert len({contributors[number] for number in range(1, ROUNDS + 1)}) > 1  # there is something to find out
    for name in [name for name in lines[0] if "bytes" in name and "total" not in name]:
        seen = {contributors[line["round"]]: line[name] for line in lines}
        assert len(set(seen.values())) == 1, f"{name} by number of contributors: {seen}"
    totals = [line["bytes_up_total"] / line["round"] for line in lines]
    assert len(set(totals)) == 1
