"""Configuration: round trip, clear errors, presets, resolution of "auto"."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowkey.experiments.schemes import scheme_of

from lowkey.errors import ConfigError
from lowkey.experiments import Config, find, override, parse, presets
from lowkey.experiments.config import valid_keys
from lowkey.privacy import claimed_epsilon

PRIVATE = {"federation": {"scheme": "fl-cs-dp"}, "privacy": {"clip_norm": 0.5, "noise_multiplier": 1.5}}

configs = st.builds(
    lambda seed, clients, rate, ratio, momentum, scheme, clip: parse(
        {
            "seed": seed,
            "data": {"clients": clients},
            "training": {"learning_rate": rate},
            "federation": {"scheme": scheme, "cohort": 1},
            "codec": {"ratio": ratio},
            "server": {"momentum": momentum},
        }
        | ({"privacy": {"clip_norm": clip, "noise_multiplier": 1.0}} if scheme.endswith("-dp") else {})
    ),
    st.integers(0, 2**40),
    st.integers(1, 10**6),
    st.floats(1e-6, 1e3),
    st.floats(1e-6, 1.0),
    st.floats(0.0, 0.999),
    st.sampled_from(["fl-cs", "fl-cs-dp", "fl-rnd", "fl-freq-dp"]),
    st.floats(1e-6, 1e6),
)


@given(configs)
def test_toml_round_trip(config: Config) -> None:
    assert parse(tomllib.loads(config.to_toml())) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["codec.rato=0.1"], r"unknown key codec\.rato; did you mean codec\.ratio\?"),
        (["privacy.epsilom=1"], r"unknown key privacy\.epsilom; did you mean privacy\."),
        (["server.rat=1"], r"did you mean server\.rate"),
        (["codec.ratio=0"], r"codec\.ratio.*greater than 0"),
        (["codec.ratio=1.5"], r"codec\.ratio.*less than or equal to 1"),
        (["privacy.delta=1.0"], r"privacy\.delta.*less than 1"),
        (["privacy.noise_multiplier=-1"], r"privacy\.noise_multiplier.*greater than 0"),
        (["privacy.clip_norm=inf"], r"privacy\.clip_norm"),
        (["schedule.rounds=0"], r"federation\.rounds"),
        (["federation.cohort=10000"], r"federation\.cohort is 10000, above data\.clients"),
        (["federation.scheme=fl-magic"], r"must be one of fl-std"),
        (["federation.scheme=fl-cs"], r"gives no privacy"),
        (["schedule.rounds=auto"], r"needs privacy\.target_epsilon"),
        (["privacy.noise_multiplier=auto"], r"needs privacy\.target_epsilon"),
        (["codec=3"], r"codec"),
        (["seed.x=3"], r"seed"),
        (["nonsense"], r"write it as section\.key=value"),
        (["data.name=sih-sus"], r"cannot learn from sih-sus; set it to 'mortality-mlp'"),
        (["model.name=mortality-mlp"], r"cannot learn from fashion-mnist; set it to 'fashion-cnn'"),
        (["data.division=natural"], r"of fashion-mnist it must be iid or dirichlet"),
        (["data.min_count=5"], r"\[data\.hospital\] is for hospital data"),
        (["data.name=sih-sus", "model.name=mortality-mlp", "data.division=dirichlet"], r"must be iid or natural"),
    ],
)
def test_errors_name_the_key_and_what_to_do(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(override(PRIVATE | {"seed": 1}, changes))


def test_private_scheme_without_privacy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[privacy\]"):
        parse({"federation": {"scheme": "fl-std-dp"}})
    with pytest.raises(ConfigError, match=r"federation.*missing"):
        parse({})


def test_override_reads_toml_values_and_bare_words() -> None:
    table = override({}, ["a.b=1", "a.c=1e-5", "a.d=true", "a.e=word", 'a.f="x y"', "a.g=[1, 2]"])
    assert table == {"a": {"b": 1, "c": 1e-5, "d": True, "e": "word", "f": "x y", "g": [1, 2]}}


def test_override_leaves_the_preset_alone() -> None:
    before = find("fashion-mnist/fl-cs-r0.05")["codec"]["ratio"]
    override(find("fashion-mnist/fl-cs-r0.05"), ["codec.ratio=0.5"])
    assert find("fashion-mnist/fl-cs-r0.05")["codec"]["ratio"] == before == 0.05


def test_valid_keys_are_dotted_paths() -> None:
    keys = valid_keys()
    assert {"seed", "codec.ratio", "privacy.clip_norm", "paper.accuracy"} <= set(keys)


def test_the_papers_twenty_rows() -> None:
    rows = {name: parse(table) for name, table in presets().items() if name.startswith("fashion-mnist/")}
    assert len(rows) == 20
    clip = {1.0: 2.15, 0.2: 0.98, 0.1: 0.69, 0.05: 0.47}
    for name, config in rows.items():
        assert config.paper is not None
        assert (config.data.clients, config.federation.cohort, config.schedule.rounds) == (6000, 100, 200)
        assert (config.training.steps, config.training.batch_size) == (5, 10)
        assert (config.training.learning_rate, config.training.batches) == (0.215, "independent")
        assert config.codec.chunks == 200
        scheme = scheme_of(config.resolve())
        assert scheme.name == config.federation.scheme
        assert (config.paper.epsilon is not None) is scheme.private
        if config.privacy is not None:
            assert config.privacy.clip_norm == clip[config.codec.ratio]
            assert (config.privacy.noise_multiplier, config.privacy.delta) == (1.54, 1e-5)
            assert scheme.privacy.sampling.mode == "poisson_padded"
            assert scheme.privacy.sampling.probability == pytest.approx(1 / 60)
        if name.startswith("fashion-mnist/fl-cs"):
            assert (scheme.server.rate, scheme.server.momentum) == (0.35, 0.9)
        else:
            assert (scheme.server.rate, scheme.server.momentum) == (1.0, 0.0)
    assert rows["fashion-mnist/fl-cs-dp-r0.05"].paper.accuracy == 0.78
    assert rows["fashion-mnist/fl-std"].paper.accuracy == 0.87


@pytest.mark.parametrize("source", ["synthetic", "diabetes130", "sih-sus"])
def test_the_medical_rows(source: str) -> None:
    rows = {name: parse(table) for name, table in presets().items() if name.startswith(f"hospital/{source}/")}
    rows.pop(f"hospital/{source}/central", None)
    images = {name.removeprefix("fashion-mnist/") for name in presets() if name.startswith("fashion-mnist/")}
    assert {name.removeprefix(f"hospital/{source}/") for name in rows} == images
    for config in rows.values():
        assert config.paper is not None
        assert None not in (config.paper.balanced_accuracy, config.paper.auroc, config.paper.data)
        assert (config.federation.cohort, config.schedule.rounds, config.codec.chunks) == (100, 100, 200)
        scheme = scheme_of(config.resolve())
        assert scheme.name == config.federation.scheme
        assert (config.paper.epsilon is not None) is scheme.private
        if config.privacy is not None:
            assert config.privacy.delta == 1e-5
            assert scheme.privacy.sampling.probability == pytest.approx(100 / config.data.clients)


def test_the_papers_medical_setting() -> None:
    """Exactly for the synthetic data; the public sources have S and noise of their own."""
    clip = {1.0: 0.31, 0.2: 0.14, 0.1: 0.10, 0.05: 0.07}
    for name, table in presets().items():
        if name.startswith("hospital/synthetic/"):
            config = parse(table)
            assert config.data.clients == 5011
            assert (config.training.steps, config.training.learning_rate) == (5, 0.1)
            assert scheme_of(config.resolve()).server.rate == 1.0
            if config.privacy is not None:
                assert (config.privacy.clip_norm, config.privacy.noise_multiplier) == (clip[config.codec.ratio], 1.49)
    assert parse(find("hospital/synthetic/fl-cs-dp-r0.05")).paper.auroc == 0.76
    assert parse(find("hospital/synthetic/fl-std")).paper.balanced_accuracy == 0.74


@pytest.mark.parametrize("source", ["diabetes130", "sih-sus"])
def test_private_presets_of_the_public_sources_keep_within_epsilon_1(source: str) -> None:
    config = parse(find(f"hospital/{source}/fl-cs-dp-r0.05")).resolve()
    event = config.sampling().event(config.privacy.noise_multiplier)
    assert 0.99 < claimed_epsilon([event] * 100, 1e-5) <= 1


def test_every_preset_is_valid() -> None:
    for table in presets().values():
        parse(table)


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean fashion-mnist/fl-cs-r0\.05"):
        find("fashion-mnist/fl-cs-r0.5")


def test_file_as_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(parse(PRIVATE).to_toml())
    assert parse(find(str(file))).privacy.clip_norm == 0.5
    file.write_text("not [ toml")
    with pytest.raises(ConfigError, match="not valid TOML"):
        find(str(file))
    with pytest.raises(ConfigError, match="does not exist"):
        find(str(tmp_path / "none.toml"))


def test_auto_noise_and_auto_rounds() -> None:
    base = find("fashion-mnist/fl-std-dp")
    noise = parse(override(base, ["privacy.noise_multiplier=auto", "privacy.epsilon=1"])).resolve()
    assert noise.privacy.noise_multiplier == pytest.approx(1.2245, abs=1.01e-4)
    rounds = parse(override(base, ["schedule.rounds=auto", "privacy.epsilon=1"])).resolve()
    assert rounds.schedule.rounds == 431
    with pytest.raises(ConfigError, match="not one round"):
        parse(override(base, ["schedule.rounds=auto", "privacy.epsilon=0.01"])).resolve()
