"""The proxy of deploy/nginx.conf, with a real nginx, SuperLink and SuperNodes: it lets nodes in, and nothing else."""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lowkey.deployment.certificates import new_certificates, new_executor_secret, new_node_key
from lowkey.deployment.local import LocalFederation
from lowkey.deployment.processes import Processes, free_ports, wait_for_port

CONF = Path(__file__).parents[2] / "deploy/nginx.conf"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: apt-get install nginx-light)")


@dataclass(frozen=True)
class Served:
    """A SuperLink behind the proxy."""

    federation: LocalFederation
    proxy: int
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def post(self, path: str, *, port: int, method: str = "POST", body: bytes = b"") -> tuple[int, str]:
        trusted = ssl.create_default_context(cafile=str(self.federation.home / "tls/ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusted, timeout=30)
        connection.request(method, path, body, {"content-type": "application/protobuf"})
        answer = connection.getresponse()
        content = answer.read().decode(errors="replace")
        connection.close()
        return answer.status, content

    def start_node(self, name: str, authority: Path) -> None:
        home, port = self.federation.home, free_ports(1)[0]
        command = [
            "flower-supernode", "--superlink", f"127.0.0.1:{self.proxy}", "--root-certificates", str(authority),
            "--auth-supernode-private-key", str(home / f"{name}.key"), "--host", "127.0.0.1", "--port", str(port),
            "--max-retries", "0",
        ]  # fmt: skip
        self.nodes[name] = self.federation.processes.start(name, command, self.federation.environment(name))

    def log(self, name: str) -> str:
        return (self.federation.processes.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")


def within(seconds: float, done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not (found := done()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def write_configuration(home: Path, superlink: int, proxy: int) -> Path:
    """The file as it is delivered, with the ports and paths of this test, inside the least that nginx needs."""
    text = CONF.read_text(encoding="utf-8")
    for before, after in (
        ("127.0.0.1:8000;", f"127.0.0.1:{superlink};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{proxy} ssl;"),
        ("/etc/lowkey/tls/", f"{home}/tls/"),
        ("/var/log/nginx/", f"{home}/"),
    ):
        assert before in text
        text = text.replace(before, after)
    (home / "site.conf").write_text(text, encoding="utf-8")
    places = "".join(
        f"{kind}_temp_path {home}/temporary-{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root root;" if os.geteuid() == 0 else ""
    main = f"{user} daemon off; pid {home}/nginx.pid; error_log {home}/nginx-error.log; events {{}}"
    (home / "nginx.conf").write_text(f"{main} http {{ {places} include {home}/site.conf; }}", encoding="utf-8")
    return home / "nginx.conf"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("proxy")
    superlink, proxy = free_ports(2)
    new_certificates(home / "tls", ["fl.example.org", "localhost", "127.0.0.1"])
    new_certificates(home / "other", ["fl.example.org", "localhost", "127.0.0.1"])
    new_executor_secret(home / "tls/superexec.secret")
    for name in ("registered", "unregistered", "deceived"):
        new_node_key(home / f"{name}.key")
    with Processes(home / "logs") as processes:
        federation = LocalFederation(home=home, processes=processes, port=superlink, node_ports=[])
        configuration = write_configuration(home, superlink, proxy)
        nginx = processes.start("nginx", [str(NGINX), "-e", "stderr", "-c", str(configuration)], dict(os.environ))
        federation.start_superlink()
        assert wait_for_port(proxy, nginx, 30), (home / "logs/nginx.log").read_text()
        settings = f'address = "127.0.0.1:{superlink}"\nroot-certificates = "{home / "tls/ca.crt"}"\n'
        federation.environment("cli")
        (home / "flwr/cli/config.toml").write_text(f'[superlink]\ndefault = "local"\n[superlink.local]\n{settings}')
        served = Served(federation, proxy)
        served.start_node("unregistered", home / "tls/ca.crt")
        served.start_node("deceived", home / "other/ca.crt")
        federation.flwr(
            *(["supernode", "register", str(home / f"{n}.pub"), "local"] for n in ("registered", "deceived"))
        )
        served.start_node("registered", home / "tls/ca.crt")
        yield served


HIDDEN = [
    "/v1/control/list-runs",
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/runtime/acquire-task",
    "/health",
    "/docs",
    "/openapi.json",
]
DISGUISED = [
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/..%2fcontrol/list-runs",
    "//v1/control/list-runs",
    "/v1/fleet",
    "/V1/FLEET/pull-messages",
]


@pytest.mark.parametrize("path", HIDDEN + DISGUISED)
def test_the_proxy_hides_everything_but_the_interface_of_nodes(served: Served, path: str) -> None:
    for method in ("POST", "GET"):
        status, content = served.post(path, port=served.proxy, method=method)
        assert status in (301, 404)
        assert "<center>nginx</center>" in content  # not an answer of the SuperLink


@pytest.mark.parametrize("path", HIDDEN[:4])
def test_what_the_proxy_hides_is_there(served: Served, path: str) -> None:
    status, _ = served.post(path, port=served.federation.port)
    assert status != 404


def test_a_path_in_disguise_reaches_no_other_interface(served: Served) -> None:
    status, content = served.post("/v1/control/../fleet/pull-messages", port=served.proxy)
    assert (status, "nginx" in content) == (served.post("/v1/fleet/pull-messages", port=served.proxy)[0], False)


def test_nodes_post_and_nothing_else(served: Served) -> None:
    assert served.post("/v1/fleet/pull-messages", port=served.proxy, method="GET")[0] == 403


def test_who_does_not_authenticate_is_refused_by_the_superlink(served: Served) -> None:
    assert served.post("/v1/fleet/pull-messages", port=served.proxy)[0] == 401


def test_bodies_are_bounded(served: Served) -> None:
    assert served.post("/v1/fleet/push-object", port=served.proxy, body=bytes(20 << 20))[0] == 400  # no message
    try:
        status, _ = served.post("/v1/fleet/push-object", port=served.proxy, body=bytes(65 << 20))
    except OSError:  # nginx has answered and closed while we were still sending
        status = 413
    assert status == 413


def test_a_registered_node_gets_in(served: Served) -> None:
    assert within(60, lambda: "SuperNode ID" in served.log("registered")), served.log("registered")
    assert served.nodes["registered"].poll() is None
    assert served.log("superlink").count('"POST /v1/fleet/activate-node HTTP/1.1" 200') == 1


@pytest.mark.parametrize(
    ("name", "reason"), [("unregistered", "Exit Code: 305"), ("deceived", "CERTIFICATE_VERIFY_FAILED")]
)
def test_a_node_without_registration_or_with_another_authority_does_not(served: Served, name: str, reason: str) -> None:
    assert within(60, lambda: served.nodes[name].poll() is not None), served.log(name)
    assert served.nodes[name].returncode != 0
    assert reason in served.log(name)
    assert "SuperNode ID" not in served.log(name)
