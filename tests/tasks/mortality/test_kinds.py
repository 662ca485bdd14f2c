"""``data.encoding`` and ``model.kind``, from a configuration to a private run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from lowkey.errors import ConfigError, InvalidInput
from lowkey.experiments import Config, build, load_config
from lowkey.learning import HeadTrainer, LinearHead, TorchTrainer
from lowkey.simulation import run
from lowkey.tasks import MORTALITY
from lowkey.tasks.mortality.parts import OBJECTIVE, WHOLE
from tests.tasks.mortality.tables import diabetes, write

HEAD = ('model.kind="head"', 'training={kind="full-gradient", balanced=true, steps=3, learning_rate=8}')
PUBLIC = 'data.encoding="public"'


def synthetic(*changes: str) -> Config:
    small = ("data.scale=0.002", "federation.clients=10", "federation.cohort=5")
    return load_config("hospital/synthetic/fl-std", [*small, *changes])


def of_diabetes(tmp_path: Path, *changes: str) -> Config:
    file = write(tmp_path / "table.csv", diabetes(120))
    places = (f'data.source="{file}"', "data.any_version=true", "federation.clients=8", "federation.cohort=4")
    return load_config("hospital/diabetes130/fl-std", [*places, *changes])


def network(inputs: int, hidden: int = 200) -> int:
    return (inputs + 1) * hidden + (hidden + 1) * hidden + hidden + 1


def size(config: Config) -> int:
    return build(config).initial_weights.size


def test_sizes_of_the_models_of_synthetic_admissions() -> None:
    """A head has five numbers more for calibration. On public features it needs no bias: they have a constant."""
    assert size(synthetic()) == network(7_280) == 1_496_601
    assert size(synthetic(PUBLIC, "model.hidden=3")) == network(7_281, 3)
    assert size(synthetic(*HEAD)) == 7_280 + 1 + 5
    assert size(synthetic(*HEAD, PUBLIC)) == 7_281 + 5


def test_sizes_of_the_models_of_a_source(tmp_path: Path) -> None:
    """Fitted columns are those of the table, public ones those of the rules: here all drugs, although one is given."""
    fitted = {count: of_diabetes(tmp_path, f"data.min_count={count}", *HEAD) for count in (1, 90)}
    assert size(fitted[1]) > size(fitted[90])
    for count in (1, 90):
        config = of_diabetes(tmp_path, PUBLIC, f"data.min_count={count}", *HEAD)
        assert size(config) == 1 + 1 + 2 + 3 + 3 * 23 + 1 + 5
    assert size(of_diabetes(tmp_path, PUBLIC, *HEAD, 'data.features=["gender", "age"]')) == 1 + 2 + 1 + 5


@pytest.mark.parametrize("encoding", ["fitted", "public"])
def test_rows_are_sparse_and_fit_the_model(encoding: str) -> None:
    config = synthetic(*HEAD, f'data.encoding="{encoding}"')
    clients, test = MORTALITY.all_clients(config.study), MORTALITY.test(config.study)
    assert test is not None
    for rows, died in (clients[0], clients[9], test):
        assert isinstance(rows, scipy.sparse.csr_array)
        assert rows.shape == (len(died), 7_281 if encoding == "public" else 7_280)
        assert rows.dtype == died.dtype == np.float32
        assert set(died) == {0.0, 1.0}
        longest = np.sqrt(rows.power(2).sum(axis=1).max())
        assert (longest <= 1 + 1e-6) == (encoding == "public")


def test_a_head_learns_from_all_rows_and_a_network_from_as_many_deaths_as_survivals() -> None:
    head, mlp = synthetic(*HEAD, PUBLIC), synthetic(PUBLIC)
    assert MORTALITY.objective(head.study) is WHOLE
    assert WHOLE.choice is None
    assert MORTALITY.objective(mlp.study) is OBJECTIVE
    assert OBJECTIVE.choice is not None
    assert isinstance(MORTALITY.model(head.study), LinearHead)
    assert isinstance(build(head).trainer, HeadTrainer)
    assert isinstance(build(mlp).trainer, TorchTrainer)


def test_balanced_classes_count_alike() -> None:
    """From zero weights, a step is half of the mean of those who died minus half of the mean of the others."""
    one_step = 'training={kind="full-gradient", balanced=true, learning_rate=8}'
    config = synthetic(PUBLIC, HEAD[0], one_step)
    experiment = build(config)
    rows, died = MORTALITY.all_clients(config.study)[3]
    update = experiment.trainer.train(experiment.initial_weights, 3, np.random.default_rng(0)).update
    dense = rows.toarray()
    expected = 8 * (dense[died == 1].mean(0) - dense[died == 0].mean(0)) / 4
    np.testing.assert_allclose(update[:-5], expected, atol=1e-6)
    assert not experiment.initial_weights.any()
    assert np.linalg.norm(update[-5:]) == pytest.approx(1)  # what it knows of slope and intercept


def test_wrong_words_and_settings_are_told(tmp_path: Path) -> None:
    for change, text in (
        ('data.encoding="secret"', r"data\.encoding.*'fitted', 'public' or 'private'.*'secret'"),
        ('model.kind="cnn"', r"model\.kind.*'mlp' or 'head'.*'cnn'"),
        ('data.features=["age"]', r"data\.features is \['age'\], but synthetic admissions have all"),
    ):
        with pytest.raises(ConfigError, match=text):
            synthetic(change)
    with pytest.raises(InvalidInput, match="'full-gradient' is for a LinearHead"):
        build(synthetic(PUBLIC, HEAD[1]))
    with pytest.raises(InvalidInput, match=r"feature icd9 has no public rule; leave it out of data\.features"):
        build(of_diabetes(tmp_path, PUBLIC, 'data.features=["age", "icd9"]'))


def test_a_private_run_learns(tmp_path: Path) -> None:
    """Ten runs reached AUROC 0.782 to 0.796, with a standard deviation of 0.004."""
    config = load_config(
        "hospital/synthetic/fl-std-dp",
        [
            'data={scale=0.01, encoding="public"}',
            'federation={scheme="fl-std-dp", clients=50, cohort=50}',
            'privacy={clip="normalise", epsilon=20.0, sampling="all", dropouts=0.0, colluders=0.0}',
            "schedule.rounds=4",
            "server.rate=8.0",
            "runtime.workers=0",
            *HEAD,
        ],
    )
    found = run(config, tmp_path / "run")
    assert found["final_auroc"] > 0.7
    assert 15 < found["epsilon_server"] <= found["epsilon_server_limit"] <= 20
    assert found["bytes_up_per_client"] < 4 * 7_281
    lines: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert len(lines) == 4
