"""Run directories: atomic files, honest errors, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lowkey.errors import RunError
from lowkey.experiments import Config, RunDirectory, find, override, parse
from lowkey.federation import RunState
from lowkey.privacy import Event, Ledger
from lowkey.tasks import Presentation, Score
from tests.conftest import tiny_config, tiny_hospital

TINY = ("federation.clients=400", "federation.cohort=5")
EVENT = Event(noise_multiplier=1.0, sampling_probability=0.1)


def state(number: int = 3) -> RunState:
    rng = np.random.default_rng(number)

    def drawn(size: int) -> np.ndarray:
        return rng.normal(size=size).astype(np.float32)

    return RunState(
        round=number,
        weights=drawn(9),
        gathered={"momentum": drawn(4), "error": drawn(4)},
        optimiser={"momentum": drawn(9)},  # a name that another part has, too
        average={"average": drawn(9)},
        clip_norm=0.75,
        bytes_up=12,
        bytes_down=2**40,
    )


def restored(directory: RunDirectory, ledger: Ledger) -> RunState:
    found = directory.load_checkpoint(ledger)
    assert found is not None
    return found


def test_checkpoint_round_trip(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    assert directory.load_checkpoint(Ledger(None, run="test")) is None
    saved = state()
    directory.save_checkpoint(saved, Ledger(None, run="test"))
    loaded = RunDirectory.open(run_path).load_checkpoint(Ledger(None, run="test"))
    assert loaded is not None
    assert (loaded.round, loaded.bytes_up, loaded.bytes_down, loaded.clip_norm) == (3, 12, 2**40, 0.75)
    np.testing.assert_array_equal(loaded.weights, saved.weights)
    for part in ("gathered", "optimiser", "average"):
        before, after = getattr(saved, part), getattr(loaded, part)
        assert before.keys() == after.keys()
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array)


def test_only_the_last_checkpoints_are_kept(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    for number in range(1, 6):
        directory.save_checkpoint(state(number), Ledger(None, run="test"))
    assert [p.name for p in directory._checkpoints()] == [
        "checkpoint-000004.safetensors",
        "checkpoint-000005.safetensors",
    ]


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_checkpoint(run_path: Path, keep: int) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    directory.save_checkpoint(state(1), Ledger(None, run="test"))
    directory.save_checkpoint(state(2), Ledger(None, run="test"))
    newest = directory._checkpoints()[-1]
    broken = newest.read_bytes()[:keep]
    newest.write_bytes(broken)
    with pytest.raises(RunError, match=r"checkpoint-000002.*damaged.*remove it to resume from checkpoint-000001"):
        directory.load_checkpoint(Ledger(None, run="test"))
    assert newest.read_bytes() == broken
    newest.unlink()
    assert restored(directory, Ledger(None, run="test")).round == 1


def test_a_crash_while_writing_leaves_the_old_file(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    directory.save_checkpoint(state(1), Ledger(None, run="test"))

    def crash(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        directory.save_checkpoint(state(2), Ledger(None, run="test"))
    monkeypatch.undo()
    assert restored(directory, Ledger(None, run="test")).round == 1


@pytest.mark.parametrize(("made", "advice"), [(3, "continue the run with the version that wrote it"), (5, "upgrade")])
def test_a_checkpoint_of_another_version_is_refused_with_a_sentence(
    run_path: Path, made: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    with monkeypatch.context() as other:
        other.setattr("lowkey.experiments.checkpoints._FORMAT", made)
        directory.save_checkpoint(state(1), Ledger(None, run="test"))
    if made == 3:  # it had no checksum
        [file] = directory._checkpoints()
        file.write_bytes(file.read_bytes().replace(b'"sha256"', b'"before"'))
    with pytest.raises(RunError, match=f"has format {made}.*reads format 4; .*{advice}"):
        directory.load_checkpoint(Ledger(None, run="test"))


@pytest.mark.parametrize("name", ["environment.json", "attempt.json"])
@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000], ids=range(5))
def test_a_damaged_file_of_a_run_is_told(run_path: Path, name: str, damage: bytes) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    directory.number_attempt(1)
    directory.unlock()
    (run_path / name).write_bytes(damage)
    with pytest.raises(RunError, match=rf"{name} is damaged"):
        RunDirectory.open(run_path).number_attempt(1)


def test_checkpoint_newer_than_the_ledger_is_refused(run_path: Path) -> None:
    directory, ledger = RunDirectory.create(run_path, tiny_config()), Ledger(None, run="test")
    ledger.intend(1, 0, EVENT)
    directory.save_checkpoint(state(1), ledger)
    other = Ledger(None, run="another")
    other.intend(1, 0, EVENT)  # as long, but not the same
    for wrong in (Ledger(None, run="test"), other):
        with pytest.raises(RunError, match="restore the ledger"):
            directory.load_checkpoint(wrong)
    ledger.intend(2, 0, EVENT)
    assert restored(directory, ledger).round == 1


def test_a_run_keeps_its_name_and_others_have_their_own(run_path: Path) -> None:
    created = RunDirectory.create(run_path, tiny_config())
    name = created.ledger().run
    created.unlock()
    assert name.startswith("demo/fl-std/")
    assert RunDirectory.open(run_path).ledger().run == name
    assert RunDirectory.create(run_path.parent / "other", tiny_config()).ledger().run != name


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory.open(tmp_path)
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory.open(tmp_path / "missing")


def test_existing_directories_are_never_overwritten(run_path: Path) -> None:
    RunDirectory.create(run_path, tiny_config())
    with pytest.raises(RunError, match="--resume"):
        RunDirectory.create(run_path, tiny_config())
    other = run_path.parent / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="another --out"):
        RunDirectory.create(other, tiny_config())
    assert [p.name for p in other.iterdir()] == ["thesis.txt"]


MAY_CHANGE = (
    "schedule.rounds=9", "schedule.evaluate_every=2", "schedule.attempts=7", "runtime.workers=1",
    "runtime.checkpoint_every=3", "deployment.train_seconds=5", "paper.round=5", "name=other", "privacy.epsilon=7",
    "privacy.rounds=77", "privacy.spare_attempts=5", "privacy.max_contributions=300", "privacy.aggregation=masked",
)  # fmt: skip
MAY_NOT_CHANGE = (
    "seed=5", "training.learning_rate=0.5", "federation.clients=300", "federation.cohort=6", "federation.ledger=/x",
    "federation.scheme=fl-freq-dp", "data.division=dirichlet", "model.hidden=9", "codec.ratio=0.1",
    "decoder.kind=lasso", "gather.momentum=0.5", 'gather={kind="decode"}', "server.optimiser=adam", "server.rate=0.5",
    "averaging.kind=tail", "privacy.clip_norm=0.3", "privacy.noise_multiplier=3", "privacy.delta=1e-6",
    "privacy.sampling=fixed", "privacy.dropouts=0.2", "privacy.colluders=0.2", "privacy.bits=24",
    "privacy.clip=adaptive",
)  # fmt: skip


def private(*changes: str) -> Config:
    others = () if any("scheme" in change for change in changes) else ("codec.chunks=3", "gather.rate=1.0")
    return tiny_config("demo/fl-cs-dp", "privacy.noise_multiplier=1.0", "privacy.epsilon=99", *others, *changes)


@pytest.mark.parametrize("change", MAY_CHANGE)
def test_what_tells_nothing_untrue_may_change_on_resume(run_path: Path, change: str) -> None:
    directory = RunDirectory.create(run_path, private())
    directory.save_checkpoint(state(1), Ledger(None, run="test"))
    changed = private(change)
    assert changed != directory.config
    directory.adopt(changed)
    assert RunDirectory.open(run_path).config == changed
    assert RunDirectory.open(run_path).load_checkpoint(Ledger(None, run="test")) is not None


@pytest.mark.parametrize("change", MAY_NOT_CHANGE)
def test_settings_that_matter_cannot_change_on_resume(run_path: Path, change: str) -> None:
    directory = RunDirectory.create(run_path, private())
    directory.save_checkpoint(state(1), Ledger(None, run="test"))
    if change == "federation.scheme=fl-freq-dp":  # it has no chunks and no memory
        other = parse(override(find("demo/fl-std-dp"), [change, "codec.ratio=0.05", *TINY])).resolve()
    else:
        other = private(change)
    section = change.split(".")[0].split("=")[0]
    with pytest.raises(RunError, match=rf"another ({section}|codec)"):
        directory.adopt(other)
    assert RunDirectory.open(run_path).config == private()
    (run_path / "config.toml").write_text(other.to_toml())  # by hand, past the first check
    with pytest.raises(RunError, match="belongs to another configuration"):
        RunDirectory.open(run_path).load_checkpoint(Ledger(None, run="test"))


def test_a_run_goes_on_with_its_own_feature_map_only(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config("demo/private")
    directory = RunDirectory.create(run_path, config)
    assert directory.features == config.features()
    directory.adopt(config)
    monkeypatch.setattr("lowkey.tasks.fashion_mnist.maps.features", lambda _study: "another map")
    with pytest.raises(RunError, match=r"was started with the features 'scattering, .*', now they are 'another map'"):
        directory.adopt(config)


def test_open_runs_may_ask_for_more_answers_on_resume(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    directory.adopt(tiny_config("demo/fl-std", "federation.min_clients=3"))
    assert RunDirectory.open(run_path).config.federation.min_clients == 3


def test_two_processes_cannot_share_a_run(run_path: Path) -> None:
    code = (
        "from pathlib import Path; from lowkey.experiments import RunDirectory;"
        f"RunDirectory.open(Path({str(run_path)!r})).lock()"
    )

    def from_another_process() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    directory = RunDirectory.create(run_path, tiny_config())
    directory.lock()
    refused = from_another_process()
    assert refused.returncode != 0
    assert "in use by another process" in refused.stderr
    directory.unlock()
    assert from_another_process().returncode == 0


def write_metrics(path: Path, *lines: dict[str, object], config: Config | None = None) -> dict[str, object]:
    directory = RunDirectory.create(path, config or tiny_config())
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory.summary()


def test_summary_of_images(run_path: Path) -> None:
    found = write_metrics(
        run_path, {"round": 1, "accuracy": 0.5}, {"round": 2, "accuracy": 0.4}, {"round": 3, "epsilon_pld": 1.5}
    )
    assert found == {
        "preset": "demo/fl-std", "rounds": 3, "best_accuracy": 0.5, "best_round": 1, "final_accuracy": 0.4,
        "epsilon_paper": None, "epsilon_rdp": None, "epsilon_pld": 1.5, "epsilon_server": None,
        "epsilon_server_limit": None,
        "bytes_up_per_client": None,
    }  # fmt: skip


def test_summary_of_mortality_is_of_the_round_with_the_best_balanced_accuracy(run_path: Path) -> None:
    found = write_metrics(
        run_path,
        {"round": 1, "accuracy": 0.99, "balanced_accuracy": 0.5, "auroc": 0.9},
        {"round": 2, "accuracy": 0.6, "balanced_accuracy": 0.7, "auroc": 0.8},
        {"round": 3, "accuracy": 0.7, "balanced_accuracy": 0.6, "auroc": 0.85},
        config=tiny_hospital(),
    )
    assert (found["best_balanced_accuracy"], found["best_auroc"], found["best_round"]) == (0.7, 0.8, 2)
    assert (found["final_balanced_accuracy"], found["final_auroc"]) == (0.6, 0.85)
    assert not {"best_accuracy", "final_accuracy"} & found.keys()


@pytest.mark.parametrize("lines", [[], [{"round": 1}]], ids=["no round", "no test"])
def test_summary_without_evaluation(run_path: Path, lines: list[dict[str, object]]) -> None:
    found = write_metrics(run_path, *lines)
    assert (found["best_accuracy"], found["best_round"], found["final_accuracy"]) == (None, None, None)


def test_metrics_in_the_middle_of_a_line_and_damaged(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    file = run_path / "metrics.jsonl"
    file.write_text(json.dumps({"round": 1}) + "\n" + json.dumps({"round": 2}) + "\n" + '{"rou')
    assert [m["round"] for m in directory.metrics()] == [1, 2]
    directory.trim_metrics(1)
    assert [m["round"] for m in directory.metrics()] == [1]
    file.write_text("garbage\n")
    with pytest.raises(RunError, match="damaged"):
        directory.metrics()


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [("3", "2", True), ("unlimited", "9", True), ("3", "4", False), ("3", "unlimited", False), ("3", "3", False)],
)
def test_a_limit_of_contributions_may_grow_but_not_shrink(
    run_path: Path, before: str, after: str, refused: bool
) -> None:
    """Clients may have contributed more often already, and the ε for the server is computed by the limit."""

    def limited(limit: str) -> Config:
        return tiny_config("demo/fl-std-dp", f"privacy.max_contributions={limit}")

    directory = RunDirectory.create(run_path, limited(before))
    if refused:
        with pytest.raises(RunError, match="a limit cannot be lowered later"):
            directory.adopt(limited(after))
    else:
        directory.adopt(limited(after))


def test_a_run_that_goes_on_is_no_longer_finished_or_failed(run_path: Path) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    directory.write_result({"rounds": 3})
    assert directory.state() == "finished"
    directory.forget_end()
    assert directory.state() == "stopped"
    directory.write_failure("no power")
    directory.forget_end()
    assert directory.state() == "stopped"


def test_the_best_round_follows_the_score(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory.create(run_path, tiny_config())
    lines = [{"round": n, "loss": loss, "accuracy": 0.5} for n, loss in ((1, 0.9), (2, 0.3), (3, 0.6))]
    (run_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judged = Presentation(scores=(Score("loss", "loss", lower_is_better=True),))
    monkeypatch.setattr(directory, "presentation", lambda: judged)
    summary = directory.summary()
    assert (summary["best_loss"], summary["best_round"], summary["final_loss"]) == (0.3, 2, 0.6)
