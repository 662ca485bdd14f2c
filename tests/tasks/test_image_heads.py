"""Fashion-MNIST with a head: features of single images, the same in a simulation and at a node, and a private run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowkey.errors import ConfigError, InvalidInput
from lowkey.experiments import Config, build, load_config
from lowkey.features import features_of
from lowkey.learning import CentredHead, Examples, HeadTrainer
from lowkey.simulation import run
from lowkey.tasks import FASHION_MNIST
from lowkey.tasks.fashion_mnist import images, parts
from lowkey.tasks.fashion_mnist.images import ImageClients, ImageData, RowClients
from lowkey.tasks.fashion_mnist.maps import feature_map

CLIENTS, IMAGES, FEATURES = 12, 120, 40
TRAINING = 'training={kind="full-gradient"}'
HEAD = ('model.kind="head"', f"model.features={FEATURES}", TRAINING)

DIGEST = "ac1f433d64c0fedf3855c8f3c746b63f6dd1fac422baaecf5ebbc4de9a5c56fc"
"""Of the map to 1,500 numbers: with another one, a node would learn another model without any error."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageData]:
    """120 training and 50 test images of the bundled sample, of all classes."""
    whole = images.load_fashion_mnist("bundled")
    train, test = slice(0, None, 4000 // IMAGES), slice(0, None, 20)
    data = ImageData(
        whole.train_images[train][:IMAGES], whole.train_labels[train][:IMAGES],
        whole.test_images[test], whole.test_labels[test], source="bundled",
    )  # fmt: skip
    assert set(data.train_labels) == set(range(10))
    monkeypatch.setattr(parts, "load_fashion_mnist", {"bundled": data}.__getitem__)
    for kept in (parts._loaded, parts._mapped):
        kept.cache_clear()
    yield data
    for kept in (parts._loaded, parts._mapped):
        kept.cache_clear()


def configured(*changes: str) -> Config:
    few_clients = (f"federation.clients={CLIENTS}", "federation.cohort=6")
    return load_config("demo/fl-std", [*few_clients, *changes])


def held_out(*changes: str) -> Examples:
    examples = FASHION_MNIST.test(configured(*changes).study)
    assert examples is not None
    return examples


def test_sizes_of_the_models() -> None:
    """A centre, and ten rows of weights for the features and a constant."""
    for features, config in ((FEATURES, configured(*HEAD)), (1500, configured(HEAD[0], TRAINING))):
        experiment = build(config)
        assert isinstance(FASHION_MNIST.model(config.study), CentredHead)
        assert isinstance(experiment.trainer, HeadTrainer)
        assert experiment.initial_weights.size == features + 10 * (features + 1)
        assert not experiment.initial_weights.any()
    convolutions, dense = 8 * 26 + 16 * (8 * 25 + 1), (16 * 49 + 1) * 64 + 65 * 10
    assert build(configured("model.features=7")).initial_weights.size == convolutions + dense


@pytest.mark.parametrize("division", ["iid", "dirichlet"])
def test_clients_have_features_of_their_own_images(division: str) -> None:
    divided = f'data.division="{division}"'
    head, cnn = (FASHION_MNIST.all_clients(configured(*more, divided).study) for more in (HEAD, ()))
    assert isinstance(head, RowClients)
    assert isinstance(cnn, ImageClients)
    assert len(head) == len(cnn) == CLIENTS
    for client in range(CLIENTS):
        (rows, labels), (pixels, same) = head[client], cnn[client]
        assert rows.dtype == np.float32
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, same)
        expected = features_of(pixels[:, 0], feature_map(FEATURES))
        np.testing.assert_allclose(rows, expected, atol=1e-6)


def test_a_node_computes_features_of_its_own_images_only(monkeypatch: pytest.MonkeyPatch) -> None:
    study = configured(*HEAD).study
    simulated = FASHION_MNIST.all_clients(study)
    seen: list[int] = []

    def counting(inputs: Any, mapping: Any) -> Any:
        seen.append(len(inputs))
        return features_of(inputs, mapping)

    parts._mapped.cache_clear()
    monkeypatch.setattr(parts, "features_of", counting)
    for client in (0, CLIENTS - 1):
        rows, labels = FASHION_MNIST.data_at(study, {"client": client})
        np.testing.assert_allclose(rows, simulated[client][0], atol=1e-6)
        np.testing.assert_array_equal(labels, simulated[client][1])
    assert seen == [IMAGES // CLIENTS] * 2


def test_a_node_with_the_network_has_its_images() -> None:
    study = configured().study
    for found, expected in zip(
        FASHION_MNIST.data_at(study, {"partition-id": 5}), FASHION_MNIST.all_clients(study)[5], strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_test_rows_have_the_features_of_the_test_images(few: ImageData) -> None:
    rows, labels = held_out(*HEAD)
    expected = features_of(few.test_images.astype(np.float32) / 255, feature_map(FEATURES))
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    np.testing.assert_array_equal(labels, few.test_labels)
    pixels, _ = held_out()
    assert pixels.shape == (50, 1, 28, 28)


def test_the_feature_map_is_public(few: ImageData) -> None:
    """It is the same for everybody, looks at one image at a time, and gives rows of norm 1 at most."""
    pixels = few.train_images[:20].astype(np.float32) / 255
    projected, whole = (features_of(pixels, feature_map(size)) for size in (FEATURES, 3969))
    assert (projected.shape, whole.shape) == ((20, FEATURES), (20, 3969))
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    assert 0.5 < np.linalg.norm(projected, axis=1).min() < np.linalg.norm(projected, axis=1).max() <= 1 + 1e-6
    alone = features_of(pixels[3:4], feature_map(FEATURES))
    np.testing.assert_allclose(alone[0], projected[3], atol=1e-6)
    assert feature_map(1500).digest == DIGEST


def test_features_of_blank_and_hostile_images_are_finite() -> None:
    pixels = np.zeros((3, 28, 28), np.float32)
    pixels[1] = 1.0
    pixels[2, 14, 14] = 1.0
    for size in (FEATURES, 3969):
        rows = features_of(pixels, feature_map(size))
        assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-6


def test_features_of_other_sizes_are_kept_apart() -> None:
    one, other = (
        FASHION_MNIST.all_clients(configured(HEAD[0], f"model.features={size}", TRAINING).study)[0][0]
        for size in (10, 20)
    )
    assert (one.shape[1], other.shape[1]) == (10, 20)


def test_wrong_settings_are_told() -> None:
    for change, text in (
        ('model.kind="mlp"', r"model\.kind.*'cnn' or 'head'.*'mlp'"),
        ("model.features=0", r"model\.features is 0; it must be at least 1"),
        ("model.features=3970", r"model\.features is 3970; it must be at most 3969"),
    ):
        with pytest.raises(ConfigError, match=text):
            configured(change)
    with pytest.raises(InvalidInput, match="a CentredHead has parts that SGD does not learn; train it by 'full-grad"):
        build(configured(*HEAD[:2]))
    with pytest.raises(ConfigError, match=r"--node-config 'client=0"):
        FASHION_MNIST.data_at(configured(*HEAD).study, {})
    private = 'privacy={clip="normalise", epsilon=1.0}'
    with pytest.raises(InvalidInput, match=r"set privacy\.centring"):
        build(configured(*HEAD, 'federation.scheme="fl-std-dp"', private))


def test_a_private_run_learns_the_centre_and_then_the_head(tmp_path: Path) -> None:
    """Ten runs reached accuracy 0.44 to 0.46; chance is 0.1."""
    config = configured(
        *HEAD,
        'federation={scheme="fl-std-dp", clients=60, cohort=60}',
        'privacy={clip="normalise", epsilon=500.0, centring=0.1, sampling="all", dropouts=0.0, colluders=0.0}',
        "schedule.rounds=6",
        "server.rate=4.0",
        "runtime.workers=0",
    )
    found = run(config, tmp_path / "run")
    assert found["final_accuracy"] > 0.3
    assert found["epsilon_pld"] <= 500
    assert found["epsilon_server"] <= found["epsilon_server_limit"]  # of a client that gave six rounds and no centre
