"""Server and nodes start only with the same public feature map."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.app import Message

from lowkey.errors import LowkeyError
from lowkey.experiments import RunDirectory
from lowkey.features import Chain, FeatureMap, Projection, Scattering
from lowkey.flower.node import settings_digest
from lowkey.tasks import Study
from lowkey.tasks.fashion_mnist import maps
from tests.conftest import tiny_config
from tests.flower.loopback import Setting

HEAD = ["model.kind=head", "model.features=12", 'training={kind="full-gradient"}']
PRIVATE = ("demo/private", [*HEAD, "privacy.epsilon=100.0", "privacy.dropouts=0.25", "privacy.colluders=0.0"])
OPEN = ("demo/fl-std", [*HEAD, "federation.min_clients=3"])


def other_map(size: int) -> FeatureMap:
    return Chain((Scattering(image=(28, 28)), Projection(size=size, seed=1)))


def apart(setting: Setting, monkeypatch: pytest.MonkeyPatch, clients: set[int]) -> None:
    """These clients have another map."""

    def handle_apart(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        del message
        with monkeypatch.context() as patch:
            if client in clients:
                patch.setattr("lowkey.tasks.fashion_mnist.maps.feature_map", other_map)
            return [handle()]

    setting.grid.fault = handle_apart


@pytest.mark.parametrize("preset", [PRIVATE, OPEN], ids=["private", "open"])
def test_a_node_with_another_map_is_not_admitted(
    preset: tuple[str, list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(tmp_path, *preset, rounds=3)
    apart(setting, monkeypatch, {1})
    with caplog.at_level(logging.WARNING):
        setting.serve()
    run = RunDirectory.open(setting.out)
    assert [line["survivors"] for line in run.metrics()] == [3, 3, 3]
    features = setting.config.features()
    assert f"client 1 has agreed to other settings, or has another model or feature map; the server's: {features};" in (
        caplog.text
    )
    assert run.features == features


def test_a_server_with_another_map_finds_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(tmp_path, *PRIVATE, rounds=3)
    apart(setting, monkeypatch, {0, 1, 2, 3})
    with pytest.raises(LowkeyError, match="0 of 4 clients are online"):
        setting.serve()
    assert "client 3 has agreed to other settings" in caplog.text


def test_the_map_is_made_once_at_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later messages, each in a new process, take the text from the node's memory."""
    made: list[Study] = []
    features = maps.features

    def counted(study: Study) -> str:
        made.append(study)
        return features(study)

    monkeypatch.setattr(maps, "features", counted)
    setting = Setting(tmp_path, *PRIVATE, rounds=3)
    setting.serve()
    assert len(made) == 4 + 3  # at each node; the server's scheme, its run directory, and the settings that it adopts


def test_the_map_is_in_the_digest_that_both_sides_compare() -> None:
    for preset in ("demo/fl-std", "demo/fl-cs-dp"):
        config = tiny_config(preset)
        made = [config.scheme(features=text) for text in ("", "a", "b")]
        assert len({settings_digest(scheme, 100) for scheme in made}) == 3
