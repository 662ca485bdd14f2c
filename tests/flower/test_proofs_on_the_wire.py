"""Proofs travel beside the masked vectors: the same model as in a simulation, and a node without one drops out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message

from lowkey.experiments import RunDirectory
from lowkey.experiments.checkpoints import unpack
from lowkey.flower.node import REPLAY_VARIABLE
from lowkey.rng import ReplaySecrets
from lowkey.secagg import Masked, decode, encode
from lowkey.simulation import run
from tests.flower.loopback import PRIVATE, Setting

pytest.importorskip("nacl", reason="proofs need the extra 'proofs'")

PROVEN = (PRIVATE[0], [*PRIVATE[1], "privacy.proofs=true"])


@pytest.fixture(autouse=True)
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPLAY_VARIABLE, "7")


def test_proven_rounds_give_the_model_of_a_simulation(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PROVEN)
    setting.serve()
    simulated = replace(setting.config, runtime=replace(setting.config.runtime, workers=0))
    run(simulated, tmp_path / "simulated", secrets=ReplaySecrets(7))
    found, expected = (
        unpack(sorted(out.glob("checkpoint-*"))[-1]).state.weights for out in (setting.out, tmp_path / "simulated")
    )
    np.testing.assert_array_equal(found, expected)


def test_a_node_without_a_proof_drops_out(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PROVEN)

    def fault(client: int, _message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        if client == 2 and "vector" in reply.content:
            fields = dict(reply.content.config_records["reply"])
            said = decode(Masked, cast(bytes, fields["message"]))
            assert said.proof
            reply.content["reply"] = ConfigRecord(fields | {"message": encode(Masked, replace(said, proof=b""))})
        return [reply]

    setting.grid.fault = fault
    setting.serve()
    assert RunDirectory.open(setting.out).metrics()[0]["survivors"] == 3
