"""A node runs approved apps and no others."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

from lowkey.deployment.apps import app_hash, new_app
from lowkey.deployment.guard import PROGRAM, approve, bundle_digest, guard, require_approved, write_guard
from lowkey.errors import ConfigError, PolicyRefused


def bundle(*files: tuple[str, str], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return buffer.getvalue()


def test_an_approved_bundle_passes_and_another_does_not(tmp_path: Path) -> None:
    app = new_app(tmp_path / "hospitals")
    approved = tmp_path / "approved.txt"
    approve(approved, app_hash(app), "hospitals")
    require_approved(build_fab_from_disk(app), approved)
    (app / "hospitals/lowkey.toml").open("a").write("\n# less noise\n")
    with pytest.raises(PolicyRefused, match="not approved at this node"):
        require_approved(build_fab_from_disk(app), approved)


def test_without_a_list_nothing_is_approved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no app is approved"):
        require_approved(bundle(("a", "")), tmp_path / "approved.txt")


def test_a_line_that_is_taken_back_counts_no_more(tmp_path: Path) -> None:
    app, approved = bundle(("a", "")), tmp_path / "approved.txt"
    approve(approved, bundle_digest(app), "one")
    approved.write_text("# " + approved.read_text())
    with pytest.raises(PolicyRefused):
        require_approved(app, approved)


def test_approving_twice_writes_one_line(tmp_path: Path) -> None:
    for _ in range(2):
        approve(tmp_path / "approved.txt", "digest", "name")
    assert (tmp_path / "approved.txt").read_text() == "digest  name\n"


def test_digests_follow_names_and_contents_however_compressed() -> None:
    one = bundle_digest(bundle(("a", "1"), ("b", "2")))
    assert one == bundle_digest(bundle(("b", "2"), ("a", "1"), compression=zipfile.ZIP_STORED))
    others = [bundle(("a", "2"), ("b", "1")), bundle(("a", "1")), bundle(("a", "1"), ("b", "2"), ("c", ""))]
    assert one not in {bundle_digest(other) for other in others}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_bundle_that_can_be_read_in_two_ways_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="twice"):
        bundle_digest(bundle(("a", "1"), ("a", "2")))


@pytest.mark.parametrize(
    "damaged", [b"", b"no bundle", bundle(("a", "1" * 1000))[:-40]], ids=["empty", "no bundle", "cut off"]
)
def test_a_damaged_bundle_is_refused(damaged: bytes) -> None:
    with pytest.raises(PolicyRefused, match="cannot be read"):
        bundle_digest(damaged)


def test_a_bundle_that_would_fill_the_machine_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="too many bytes"):
        bundle_digest(bundle(("a", "\0" * 100_000_001)))


class Runtime(SimpleNamespace):
    """Flower's runtime of clients' apps, in as much as the guard touches it."""

    def __init__(self) -> None:
        super().__init__(install_from_fab=self._install, get_load_client_app_fn=self._loader)
        self.installed: list[Path | None] = []

    def _install(self, content: bytes, directory: Path | None = None, skip_prompt: bool = False) -> Path:
        self.installed.append(directory)
        return Path("/apps/elsewhere") if directory is None else directory / "apps/one"

    def _loader(self, **options: Any) -> Callable[..., Any]:
        return lambda *_names: options


def test_what_runs_is_what_was_just_unpacked(tmp_path: Path) -> None:
    runtime, app = Runtime(), bundle(("a", ""))
    approve(tmp_path / "approved.txt", bundle_digest(app), "")
    guard(runtime, tmp_path / "approved.txt", tmp_path / "fresh")
    runtime.install_from_fab(app, skip_prompt=True)
    assert runtime.installed == [tmp_path / "fresh"]
    loaded = runtime.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)("id", "1", "hash")
    assert loaded["app_path"] == str(tmp_path / "fresh/apps/one")


def test_what_is_not_approved_is_not_unpacked(tmp_path: Path) -> None:
    runtime = Runtime()
    approve(tmp_path / "approved.txt", "another", "")
    guard(runtime, tmp_path / "approved.txt", tmp_path / "fresh")
    with pytest.raises(PolicyRefused):
        runtime.install_from_fab(bundle(("a", "")), skip_prompt=True)
    assert runtime.installed == []


def test_what_cannot_be_unpacked_tells_the_server_its_kind_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device", "/srv/st-ann/tmp")

    runtime, app = Runtime(), bundle(("a", ""))
    runtime.install_from_fab = full
    approve(tmp_path / "approved.txt", bundle_digest(app), "")
    guard(runtime, tmp_path / "approved.txt", tmp_path / "fresh")
    with pytest.raises(PolicyRefused, match=r"^the app cannot be unpacked \(OSError\)") as refused:
        runtime.install_from_fab(app, skip_prompt=True)
    assert "st-ann" not in str(refused.value)
    assert refused.value.__suppress_context__
    assert "/srv/st-ann/tmp" in capsys.readouterr().err


@pytest.mark.parametrize("raised", [ValueError, ImportError, SystemExit, GeneratorExit])
def test_what_cannot_be_loaded_tells_the_server_its_kind_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], raised: type[BaseException]
) -> None:
    def broken(*_names: str) -> None:
        raise raised("row of Maria Silva")

    runtime = Runtime()
    runtime.get_load_client_app_fn = lambda **_options: broken
    guard(runtime, tmp_path / "approved.txt", tmp_path / "fresh")
    load = runtime.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    with pytest.raises(PolicyRefused) as refused:
        load("id", "1", "hash")
    assert str(refused.value) == f"the app cannot be loaded ({raised.__name__}); the node's own log says why"
    assert refused.value.__suppress_context__
    assert "row of Maria Silva" in capsys.readouterr().err


def test_ctrl_c_while_an_app_is_loaded_stays_what_it_is(tmp_path: Path) -> None:
    def interrupted(*_names: str) -> None:
        raise KeyboardInterrupt

    runtime = Runtime()
    runtime.get_load_client_app_fn = lambda **_options: interrupted
    guard(runtime, tmp_path / "approved.txt", tmp_path / "fresh")
    with pytest.raises(KeyboardInterrupt):
        runtime.get_load_client_app_fn()("id", "1", "hash")


def test_a_runtime_that_the_guard_does_not_know_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        guard(SimpleNamespace(install_from_fab=None), tmp_path, tmp_path)


def test_flowers_runtime_has_what_the_guard_changes() -> None:
    from flwr.supernode.runtime import run_clientapp

    guard(SimpleNamespace(**vars(run_clientapp)), Path(), Path())


def test_other_kinds_of_apps_do_not_run(tmp_path: Path) -> None:
    write_guard(tmp_path / "guard", tmp_path / "approved.txt")
    others = set(TASK_TYPE_TO_COMMAND.values()) - {PROGRAM}
    assert "flwr-agentapp" in others  # a server can ask a node for one, and it would bring its own code
    for program in others:
        ran = subprocess.run(
            [tmp_path / "guard" / program, "--token", "x"], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (1, f"{program} does not run at this node\n")


def test_the_guard_needs_nothing_else_in_the_path(tmp_path: Path) -> None:
    write_guard(tmp_path / "it's here/guard", tmp_path / "approved.txt")
    bare = {**os.environ, "PATH": str(tmp_path / "it's here/guard")}
    for program in (PROGRAM, "flower-superexec"):
        ran = subprocess.run([program, "--help"], env=bare, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert "--runtime-api-address" in ran.stdout
