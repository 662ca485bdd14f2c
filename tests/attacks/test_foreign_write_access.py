"""Another account on a hospital's machine that changes what its node trusts.

A node runs what approved.txt names, believes in the clients of enrolled.toml, keeps the limits of policy.toml and
counts by ledger.jsonl. Only its secret key was checked for the access of others: whoever could write the other files
could approve an app, enrol clients, raise limits or forget what was given. Whoever could read executor.secret could
fetch the node's tasks, with node.key pose as the node, and in status.json find quotes of the data.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lowkey.deployment import note_error, read_status
from lowkey.deployment.guard import bundle_digest, require_approved
from lowkey.errors import ConfigError
from tests.attacks.asking_nodes import SMALL, LyingServer, Refused
from tests.deployment.test_guard import bundle
from tests.flower.loopback import PRIVATE, Setting

DEFENDS = (
    "A node refuses to work while its home, or a file in it that it trusts, can be written by another account than its "
    "own and root, or while others can read one of its secrets; others cannot read its status.json."
)
SECRETS = ["identity.pem", "node.key", "executor.secret"]
TRUSTED = [
    "", "policy.toml", "enrolled.toml", "approved.txt", "ledger.jsonl", "sizes.json", "guard", "guard/flwr-clientapp",
    *SECRETS,
]  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> LyingServer:
    server = LyingServer(Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=4))
    server.collect(f"{server.name}/0123", 1)  # so that there is a ledger
    return server


@pytest.mark.parametrize("who", [0o020, 0o002], ids=["group", "others"])
@pytest.mark.parametrize("name", TRUSTED)
def test_what_others_can_write_is_not_trusted(server: LyingServer, name: str, who: int) -> None:
    place = server.node(0) / name
    if not place.exists():
        place.write_text("")
    server.advertise(f"{server.name}/0124", 2)
    place.chmod(place.stat().st_mode | who)
    with pytest.raises(Refused, match="ConfigError"):
        server.advertise(f"{server.name}/0125", 3)
    place.chmod(place.stat().st_mode & ~who)
    server.advertise(f"{server.name}/0126", 4)


@pytest.mark.parametrize("name", TRUSTED)
def test_what_belongs_to_another_is_not_trusted(
    server: LyingServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, own = server.node(0) / name, os.geteuid()
    if not place.exists():
        place.write_text("")
    if own == 0:
        os.chown(place, 12345, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: own + 1)
    with pytest.raises(Refused, match="ConfigError"):
        server.advertise(f"{server.name}/0124", 2)


@pytest.mark.parametrize("who", [0o040, 0o004], ids=["group", "others"])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_others_can_read_is_none(server: LyingServer, name: str, who: int) -> None:
    place = server.node(0) / name
    place.chmod(0o600 | who)
    with pytest.raises(Refused, match="ConfigError"):
        server.advertise(f"{server.name}/0124", 2)
    assert f"chmod 600 {place}" in read_status(server.node(0))["error"]
    place.chmod(0o600)
    server.advertise(f"{server.name}/0125", 3)


def test_a_node_works_without_the_secrets_that_it_does_not_need(server: LyingServer) -> None:
    for name in ("node.key", "executor.secret"):
        (server.node(0) / name).unlink()
    server.advertise(f"{server.name}/0124", 2)


def test_others_cannot_read_what_may_quote_data(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("{}")
    (tmp_path / "status.json").chmod(0o644)
    before = os.umask(0)
    try:
        note_error(tmp_path, "row of Maria Silva")
    finally:
        os.umask(before)
    assert (tmp_path / "status.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", "approved.txt"])
def test_the_guard_does_not_believe_a_list_that_others_can_write(tmp_path: Path, name: str) -> None:
    home, app = tmp_path / "home", bundle(("a", ""))
    home.mkdir(mode=0o700)
    (home / "approved.txt").write_text(f"{bundle_digest(app)}  mine\n")
    (home / "approved.txt").chmod(0o600)
    require_approved(app, home / "approved.txt")
    (home / name).chmod(0o777)
    with pytest.raises(ConfigError, match="chmod go-w"):
        require_approved(app, home / "approved.txt")
