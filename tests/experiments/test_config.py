"""Configuration: round trip, clear errors, presets, resolution of "auto"."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowkey
from lowkey.errors import ConfigError, InvalidInput
from lowkey.experiments import Config, find, load_config, override, parse, presets
from lowkey.federation import PARTS, SCHEMES
from lowkey.learning import LocalSGD
from lowkey.privacy import claimed_epsilon

PRIVATE: dict[str, Any] = {
    "federation": {"scheme": "fl-cs-dp", "clients": 6000},
    "privacy": {"clip_norm": 0.5, "noise_multiplier": 1.5},
}
OPEN: dict[str, Any] = {"federation": {"scheme": "fl-std", "clients": 50, "cohort": 5}}
IMAGES = [name for name in presets() if name.startswith("fashion-mnist/fl-")]
THE_PAPERS = "fashion-mnist/paper/fl-cs-r0.05"


def privacy_of(config: Config) -> lowkey.ClientPrivacy:
    assert config.privacy is not None
    return config.privacy


def published(config: Config) -> dict[str, float]:
    assert config.paper is not None
    return config.paper.scores


shares = st.floats(0.0, 0.999)
gathers = st.one_of(
    st.just({"kind": "decode"}),
    st.builds(lambda r, m: {"kind": "error-feedback", "rate": r, "momentum": m}, st.floats(1e-6, 1e3), shares),
)
servers = st.one_of(
    st.builds(lambda r: {"optimiser": "plain", "rate": r}, st.floats(1e-6, 1e3)),
    st.builds(lambda m: {"optimiser": "momentum", "momentum": m}, shares),
    st.builds(lambda a, b: {"optimiser": "adam", "beta1": a, "beta2": b}, shares, shares),
)
averages = st.one_of(
    st.just({"kind": "last"}),
    st.builds(lambda d: {"kind": "exponential", "decay": d}, shares),
    st.builds(lambda s: {"kind": "tail", "start": s}, st.integers(1, 10**6)),
)
decoders = st.one_of(
    st.just({"kind": "adjoint"}),
    st.builds(lambda f: {"kind": "lasso", "lambda_factor": f}, st.floats(0, 1e3)),
    st.builds(lambda t: {"kind": "layered", "tolerance": t}, st.floats(1e-9, 1.0)),
)
privacies = st.fixed_dictionaries(
    {"clip_norm": st.floats(1e-6, 1e6), "noise_multiplier": st.floats(0.1, 10.0)},
    optional={
        "epsilon": st.floats(0.1, 10.0),
        "bits": st.sampled_from([16, 20, 24, 28]),
        "spare_attempts": st.one_of(st.integers(0, 9), st.just("auto")),
        "max_contributions": st.one_of(st.integers(1, 99), st.sampled_from(["auto", "unlimited"])),
        "aggregation": st.sampled_from(["plain", "masked"]),
    },
)
configs = st.builds(
    lambda seed, clients, rate, ratio, private, privacy, **parts: parse(
        {
            "seed": seed,
            "federation": {"scheme": "fl-cs-dp" if private else "fl-cs", "cohort": 1, "clients": clients},
            "training": {"learning_rate": rate},
            "codec": {"ratio": ratio},
        }
        | parts
        | ({"privacy": privacy} if private else {})
    ),
    seed=st.integers(0, 2**40),
    clients=st.integers(1, 10**6),
    rate=st.floats(1e-6, 1e3),
    ratio=st.floats(1e-6, 1.0),
    private=st.booleans(),
    privacy=privacies,
    gather=gathers,
    server=servers,
    averaging=averages,
    decoder=decoders,
)


@given(configs)
def test_toml_round_trip(config: Config) -> None:
    assert parse(tomllib.loads(config.to_toml())) == config
    assert parse(config.to_table()) == config


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_read_again_as_it_was_written(name: str) -> None:
    config = parse(find(name))
    assert config.name == name
    assert parse(config.to_table()) == config
    assert parse(tomllib.loads(config.to_toml())) == config
    resolved = config.resolve()
    assert parse(tomllib.loads(resolved.to_toml())) == resolved
    assert resolved.resolve() == resolved


def test_nothing_is_lost_on_the_way_through_a_table() -> None:
    """Every field of every record is a key that was written, and not its default when it is read again."""
    table = {
        "name": "all", "seed": 7, "task": "fashion-mnist",
        "data": {"source": "bundled", "division": "dirichlet", "alpha": 0.25},
        "model": {"kind": "cnn", "filters": [3, 5], "hidden": 7, "features": 70},
        "federation": {"scheme": "fl-cs-dp", "clients": 90, "cohort": 9, "min_clients": 1, "ledger": "/l.jsonl"},
        "training": {"kind": "sgd", "steps": 2, "batch_size": 3, "learning_rate": 0.5, "batches": "independent"},
        "schedule": {"rounds": 4, "calibration": 2, "evaluate_every": 2, "patience": 3, "attempts": 5},
        "evaluation": {"where": "clients", "every": 2, "question": {"prevalence": 0.2}},
        "questions": [
            {
                "kind": "mean", "name": "stay", "limits": {"days": [0.0, 30.0]}, "by": "died", "values": ["0", "1"],
                "weight": "rows", "most_rows": 20,
            },
        ],
        "codec": {"kind": "chunked-dct", "ratio": 0.5, "chunks": 6, "signs": True},
        "decoder": {"kind": "lasso", "lambda_factor": 2.0, "tolerance": 0.01, "max_iterations": 8},
        "gather": {"kind": "error-feedback", "rate": 0.125, "momentum": 0.75},
        "server": {"optimiser": "adam", "rate": 0.25, "beta1": 0.5, "beta2": 0.625, "floor": 0.5},
        "averaging": {"kind": "tail", "start": 3},
        "privacy": {
            "unit": "client",
            "clip_norm": 0.5, "clip": "adaptive", "noise_multiplier": 2.5, "epsilon": 3.0, "spent": 0.5, "delta": 1e-6,
            "rounds": 9, "spare_attempts": 2, "sampling": "secret_poisson", "roster": 30, "dropouts": 0.25,
            "colluders": 0.125, "bits": 16, "max_contributions": 11, "graph": "random", "aggregation": "masked",
            "proofs": True,
            "centring": 0.1, "centring_noise": 4.5, "questions": 2, "asking": 0.2, "asking_noise": 6.5,
        },
        "runtime": {"workers": 3, "device": "cuda", "checkpoint_every": 4},
        "deployment": {"agree_seconds": 1.0, "train_seconds": 2.0, "gather_seconds": 3.0},
        "paper": {"scores": {"accuracy": 0.5}, "round": 3, "epsilon": 0.75, "data": "other"},
    }  # fmt: skip
    config = parse(table)
    assert config.to_table() == table
    for name in (field.name for field in fields(config)):
        part = getattr(config, name)
        if hasattr(part, "__dataclass_fields__"):
            written = table[name]
            assert isinstance(written, dict)
            missing = {field.name for field in fields(part)} - written.keys()  # or this test has missed a new setting
            assert missing <= {"persons", "row"}  # which a preset has


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["codec.rato=0.1"], r"unknown key codec\.rato; did you mean codec\.ratio\?"),
        (["privacy.epsilom=1"], r"unknown key privacy\.epsilom; did you mean privacy\.epsilon\?"),
        (["server.rat=1"], r"did you mean server\.rate\?"),
        (["servr.rate=1"], r"unknown key servr; did you mean server\?"),
        (["federation.cohorts=1"], r"did you mean federation\.cohort\?"),
        (["data.divison=iid"], r"did you mean data\.division\?"),
        (["model.hiden=8"], r"did you mean model\.hidden\?"),
        (["runtime.wrokers=1"], r"did you mean runtime\.workers\?"),
        (["paper.rond=1"], r"did you mean paper\.round\?"),
        (["privacy.target_epsilon=1"], r"since version 0\.2\.0 it is privacy\.epsilon"),
        (["data.clients=9"], r"since version 0\.2\.0 it is federation\.clients"),
        (["averaging.strat=2"], r"unknown key averaging\.strat; there is nothing to set here"),
        (["gather.lambda_factor=2"], r"unknown key gather\.lambda_factor"),
        (["codec.kind=[1]"], r"codec\.kind is \[1\]; it must be one of whole"),
        (["codec.ratio=0"], r"codec\.ratio is 0.*\(0, 1\]"),
        (["codec.ratio=1.5"], r"codec\.ratio is 1\.5.*\(0, 1\]"),
        (["codec.ratio=much"], r"codec\.ratio is 'much'; it must be a number"),
        (["training.steps='5'"], r"training\.steps is '5'; it must be a whole number"),
        (["training.batch_size=true"], r"training\.batch_size is True; it must be a whole number"),
        (["privacy.noise_multiplier=true"], r"privacy\.noise_multiplier is True; it must be a number or 'auto'"),
        (["privacy.delta=1.0"], r"privacy\.delta is 1\.0.*\(0, 1\)"),
        (["privacy.noise_multiplier=-1"], r"privacy\.noise_multiplier is -1.*0 or above"),
        (["privacy.clip_norm=inf"], r"privacy\.clip_norm is inf"),
        (["privacy.clip_norm=1e12"], r"privacy\.clip_norm is 1e\+12; it must be at most 1e\+06"),
        (["privacy.bits=17"], r"privacy\.bits.*17"),
        (["schedule.rounds=0"], r"schedule\.rounds is 0"),
        (["schedule.rounds=2.5"], r"schedule\.rounds.*2\.5"),
        (["federation.cohort=10000"], r"federation\.cohort is 10000; it must be at most federation\.clients, 6000"),
        (["federation.scheme=fl-magic"], r"must be one of fl-std"),
        (["federation.scheme=fl-cs"], r"promises no privacy"),
        (["federation.min_clients=2"], r"min_clients is for schemes without privacy"),
        (["schedule.rounds=auto"], r"needs privacy\.epsilon"),
        (["privacy.noise_multiplier=auto"], r"needs privacy\.epsilon"),
        (["privacy.noise_multiplier=auto", "schedule.rounds=auto", "privacy.epsilon=1"], r"are both 'auto'"),
        (["codec=3"], r"codec is 3; it must be a table"),
        (["training=3"], r"training is 3; it must be a table"),
        (["seed.x=3"], r"seed"),
        (["seed=-1"], r"seed is -1; it must be at least 0"),
        (["name=''"], r"name is ''; it must be one line of text"),
        (["name=' '"], r"name is ' '; it must be one line of text"),
        (['name="a\\nb"'], r"name is 'a\\nb'; it must be one line of text"),
        (["seed=0.5"], r"seed is 0\.5; it must be a whole number"),
        (["nonsense"], r"write it as section\.key=value"),
        (["data.division=natural"], r"data\.division.*natural"),
        (["data.min_count=5"], r"unknown key data\.min_count"),
        (["task=mortality", "data.division=dirichlet"], r"data\.division.*dirichlet"),
        (["task=mortality", "data.alpha=0.5"], r"unknown key data\.alpha; did you mean data\.scale\?"),
        (["task=mortality", "model.filters=[1, 2]"], r"unknown key model\.filters; did you mean model\.hidden\?"),
        (["codec.kind=random-subset"], r"'error-feedback'.*no common domain"),
        (["codec.kind=low-pass-dct", "decoder.kind=lasso"], r"'lasso', which needs the chunks of 'chunked-dct'"),
    ],
)
def test_errors_name_the_key_and_what_to_do(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(override(PRIVATE | {"seed": 1}, changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "owners", "chosen"),
    [
        ("codec.chunks=10", "'chunked-dct'", "codec.kind is 'whole'"),
        ("codec.ratio=0.5", "'random-subset' and 'low-pass-dct' and 'chunked-dct'", "codec.kind is 'whole'"),
        ("gather.rate=0.5", "'error-feedback'", "gather.kind is 'decode'"),
        ("server.momentum=0.5", "'momentum'", "server.optimiser is 'plain'"),
        ("decoder.lambda_factor=0.5", "'lasso'", "decoder.kind is 'adjoint'"),
        ("averaging.decay=0.5", "'exponential'", "averaging.kind is 'last'"),
    ],
)
def test_a_key_that_the_chosen_part_does_not_have_is_refused(change: str, owners: str, chosen: str) -> None:
    """Whole updates have no chunks: a setting that nothing reads must not look as if it did something."""
    with pytest.raises(ConfigError) as caught:
        parse(override(OPEN, [change]))
    assert str(caught.value).startswith(f"{change.split('=')[0]} is a setting of {owners}, but {chosen}; ")


@pytest.mark.parametrize(
    ("change", "key", "near"),
    [
        ("codec.kind=chunked-dtc", "codec.kind", "chunked-dct"),
        ("decoder.kind=laso", "decoder.kind", "lasso"),
        ("gather.kind=error-feedbak", "gather.kind", "error-feedback"),
        ("server.optimiser=adm", "server.optimiser", "adam"),
        ("averaging.kind=tial", "averaging.kind", "tail"),
    ],
)
def test_a_kind_that_does_not_exist_names_the_nearest_and_all(change: str, key: str, near: str) -> None:
    section = key.split(".")[0]
    with pytest.raises(ConfigError) as caught:
        parse(override(OPEN, [change]))
    message = str(caught.value)
    assert message.startswith(f"{key} is {change.split('=')[1]!r}; it must be one of {', '.join(PARTS[section])}")
    assert message.endswith(f"did you mean {near!r}?")


def test_parts_are_chosen_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        """
        [federation]
        scheme = "fl-cs"
        clients = 50
        cohort = 5
        [codec]
        ratio = 0.5
        [decoder]
        kind = "lasso"
        lambda_factor = 2.0
        [server]
        optimiser = "adam"
        rate = 0.05
        [averaging]
        kind = "tail"
        start = 3
        """
    )
    config = load_config(file)
    assert config.name == "mine"
    assert (config.decoder, config.server) == (lowkey.LassoDecoder(lambda_factor=2.0), lowkey.Adam(rate=0.05))
    assert config.averaging == lowkey.TailAverage(start=3)
    assert (config.codec, config.gather) == (lowkey.ChunkedDCT(ratio=0.5), lowkey.ErrorFeedback())  # the usual ones
    made = config.scheme()
    assert (made.decoder, made.server, made.averaging) == (config.decoder, config.server, config.averaging)
    changed = load_config(file, ["server.optimiser=momentum", "server.momentum=0.5"])
    assert changed.server == lowkey.Momentum(rate=0.05, momentum=0.5)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_configuration_and_the_library_make_the_same_scheme(name: str) -> None:
    ratio = {} if name.startswith("fl-std") else {"ratio": 0.5}
    privacy: dict[str, Any] | None = {"clip_norm": 0.5, "noise_multiplier": 1.5} if name.endswith("-dp") else None
    table = {"seed": 3, "federation": {"scheme": name, "clients": 60, "cohort": 6}, "codec": ratio}
    config = parse(table | ({"privacy": privacy} if privacy else {}))
    codec = type(config.codec)(**ratio)
    settings = lowkey.ClientPrivacy(**privacy) if privacy else None
    assert config.scheme() == lowkey.scheme(name, clients=60, cohort=6, codec=codec, privacy=settings, seed=3)


def test_private_scheme_without_privacy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[privacy\]"):
        parse({"federation": {"scheme": "fl-std-dp", "clients": 500}})
    with pytest.raises(ConfigError, match=r"federation\.scheme is missing; add it; federation\.clients is missing"):
        parse({})


def test_noise_of_zero_is_no_privacy() -> None:
    with pytest.raises(InvalidInput, match=r"noise_multiplier is 0, which protects nobody; raise it, or use fl-cs"):
        load_config(parse(override(PRIVATE, ["privacy.noise_multiplier=0"]))).scheme()


def test_override_reads_toml_values_and_bare_words() -> None:
    table = override({}, ["a.b=1", "a.c=1e-5", "a.d=true", "a.e=word", 'a.f="x y"', "a.g=[1, 2]"])
    assert table == {"a": {"b": 1, "c": 1e-5, "d": True, "e": "word", "f": "x y", "g": [1, 2]}}


def test_override_leaves_the_preset_alone() -> None:
    before = find("fashion-mnist/fl-cs-r0.05")["codec"]["ratio"]
    override(find("fashion-mnist/fl-cs-r0.05"), ["codec.ratio=0.5"])
    assert find("fashion-mnist/fl-cs-r0.05")["codec"]["ratio"] == before == 0.05


def test_the_papers_twenty_rows() -> None:
    rows = {name: parse(find(name)) for name in IMAGES}
    assert len(rows) == 20
    clip = {1.0: 2.15, 0.2: 0.98, 0.1: 0.69, 0.05: 0.47}
    for name, config in rows.items():
        assert config.paper is not None
        assert (config.federation.clients, config.federation.cohort, config.schedule.rounds) == (6000, 100, 200)
        assert isinstance(config.training, LocalSGD)
        assert (config.training.steps, config.training.batch_size) == (5, 10)
        assert (config.training.learning_rate, config.training.batches) == (0.215, "independent")
        scheme = config.resolve().scheme()
        assert scheme.name == config.federation.scheme
        assert (config.paper.epsilon is not None) is scheme.private
        if config.privacy is not None:
            assert config.privacy.clip_norm == clip[config.codec.ratio]
            assert (config.privacy.noise_multiplier, config.privacy.delta) == (1.54, 1e-5)
            assert scheme.privacy.sampling.mode == "poisson_padded"
            assert scheme.privacy.sampling.probability == pytest.approx(1 / 60)
        assert (scheme.server, scheme.averaging) == (lowkey.Plain(rate=1.0), lowkey.LastIterate())
        if name.startswith("fashion-mnist/fl-cs"):
            assert scheme.codec == lowkey.ChunkedDCT(ratio=config.codec.ratio, chunks=200)
            assert scheme.gather == lowkey.ErrorFeedback(rate=0.35, momentum=0.9)
        else:
            assert scheme.gather == lowkey.DecodeMean()
    assert published(rows["fashion-mnist/fl-cs-dp-r0.05"]) == {"accuracy": 0.78}
    assert published(rows["fashion-mnist/fl-std"]) == {"accuracy": 0.87}


def test_the_papers_own_decoder_is_a_preset() -> None:
    """Everything as in the row of the table, but recovered by the LASSO, as the authors did."""
    config, usual = parse(find(THE_PAPERS)), parse(find("fashion-mnist/fl-cs-r0.05"))
    assert config.decoder == lowkey.LassoDecoder()
    assert usual.decoder == lowkey.LayeredDecoder()
    assert replace(config, decoder=usual.decoder, name=usual.name) == usual


@pytest.mark.parametrize("source", ["synthetic", "diabetes130", "sih-sus"])
def test_the_medical_rows(source: str) -> None:
    rows = {name: parse(table) for name, table in presets().items() if name.startswith(f"hospital/{source}/")}
    for beside in ("central", "head", "private", "private-persons"):
        rows.pop(f"hospital/{source}/{beside}", None)
    images = {name.removeprefix("fashion-mnist/") for name in IMAGES}
    assert {name.removeprefix(f"hospital/{source}/") for name in rows} == images
    for config in rows.values():
        assert config.paper is not None
        assert set(config.paper.scores) == {"balanced_accuracy", "auroc"}
        assert config.paper.data is not None
        assert (config.federation.cohort, config.schedule.rounds) == (100, 100)
        assert getattr(config.codec, "chunks", 200) == 200
        scheme = config.resolve().scheme()
        assert scheme.name == config.federation.scheme
        assert (config.paper.epsilon is not None) is scheme.private
        if config.privacy is not None:
            assert config.privacy.delta == 1e-5
            assert scheme.privacy.sampling.probability == pytest.approx(100 / config.federation.clients)


def test_the_papers_medical_setting() -> None:
    """Exactly for the synthetic data; the public sources have S and noise of their own."""
    clip = {1.0: 0.31, 0.2: 0.14, 0.1: 0.10, 0.05: 0.07}
    for name, table in presets().items():
        if name.startswith("hospital/synthetic/fl-"):
            config = parse(table)
            assert config.federation.clients == 5011
            assert (config.training.steps, config.training.learning_rate) == (5, 0.1)
            assert config.server == lowkey.Plain(rate=1.0)
            assert getattr(config.gather, "rate", 1.0) == 1.0
            if config.privacy is not None:
                assert (config.privacy.clip_norm, config.privacy.noise_multiplier) == (clip[config.codec.ratio], 1.49)
    assert published(parse(find("hospital/synthetic/fl-cs-dp-r0.05")))["auroc"] == 0.76
    assert published(parse(find("hospital/synthetic/fl-std")))["balanced_accuracy"] == 0.74


@pytest.mark.parametrize("source", ["diabetes130", "sih-sus"])
def test_private_presets_of_the_public_sources_keep_within_epsilon_1(source: str) -> None:
    event = load_config(f"hospital/{source}/fl-cs-dp-r0.05").scheme().privacy.event()
    assert event is not None
    assert 0.99 < claimed_epsilon([event] * 105, 1e-5) <= 1  # 100 rounds and 5 spare attempts


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean fashion-mnist/fl-cs-r0\.05"):
        find("fashion-mnist/fl-cs-r0.5")


def test_file_as_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(parse(PRIVATE).to_toml())
    assert privacy_of(parse(find(str(file)))).clip_norm == 0.5
    file.write_text("not [ toml")
    with pytest.raises(ConfigError, match="not valid TOML"):
        find(str(file))
    with pytest.raises(ConfigError, match="does not exist"):
        find(str(tmp_path / "none.toml"))


def test_auto_noise_and_auto_rounds() -> None:
    exact = "privacy.spare_attempts=0"
    noise = load_config("fashion-mnist/fl-std-dp", ["privacy.noise_multiplier=auto", "privacy.epsilon=1", exact])
    assert privacy_of(noise).noise_multiplier == pytest.approx(1.2245, abs=1.01e-4)
    auto = ["schedule.rounds=auto", "privacy.epsilon=1"]
    assert load_config("fashion-mnist/fl-std-dp", [*auto, exact]).schedule.rounds == 431
    rounds = load_config("fashion-mnist/fl-std-dp", auto)
    assert (rounds.schedule.rounds, privacy_of(rounds).spare_attempts) == (410, 21)
    with pytest.raises(ConfigError, match="not one round"):
        load_config("fashion-mnist/fl-std-dp", ["schedule.rounds=auto", "privacy.epsilon=0.01"])


def test_resolving_leaves_no_open_choice() -> None:
    auto = ["privacy.noise_multiplier=auto", "privacy.epsilon=1"]
    resolved = privacy_of(load_config("fashion-mnist/fl-cs-dp-r0.05", auto))
    assert (resolved.sampling, resolved.bits, resolved.max_contributions) == ("poisson_padded", 20, 10)
    assert privacy_of(load_config("fashion-mnist/fl-std-dp", auto)).bits == 24  # nothing is compressed: larger numbers
    fewer = privacy_of(load_config("fashion-mnist/fl-std-dp", [*auto, "privacy.rounds=50"]))
    # calibrated for 50 rounds, however many are run
    assert float(fewer.noise_multiplier) < float(resolved.noise_multiplier)
    with pytest.raises(InvalidInput, match="resolve the configuration first"):
        _ = parse(
            override(find("fashion-mnist/fl-std-dp"), ["schedule.rounds=auto", "privacy.epsilon=1"])
        ).schedule.last_round


def test_for_nodes_every_node_is_one_client() -> None:
    config = load_config("demo/fl-cs-dp", nodes=5)
    assert (config.federation.clients, config.federation.cohort) == (5, 5)
    privacy = privacy_of(config)
    assert (privacy.aggregation, privacy.sampling) == ("masked", "all")
    alone = privacy_of(load_config("demo/fl-cs-dp"))
    # five of five take part in every round
    assert float(privacy.noise_multiplier) > float(alone.noise_multiplier)
    assert load_config("demo/fl-cs", nodes=1).federation.cohort == 1
    with pytest.raises(ConfigError, match="at least 3 clients"):
        load_config("demo/fl-cs-dp", nodes=2)
    with pytest.raises(ConfigError, match="at least 1"):
        load_config("demo/fl-cs", nodes=0)
