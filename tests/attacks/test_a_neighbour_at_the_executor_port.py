"""Somebody else on a hospital's machine fetches the node's tasks.

Flower's node serves an interface on 127.0.0.1, at which its executor fetches what is to be done. Everybody who can open
a connection on that machine reaches it. Without a secret the node gave the next task to whoever asked first: with it
come the token for the client's context, which holds the keys of the round that is under way, and the right to answer
in the client's name. The node's own executor then never sees the task, nor does the guard.
"""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.proto.runtime_pb2 import AcquireTaskRequest

from lowkey.deployment import LocalFederation, Processes, free_ports, prepare
from lowkey.deployment.processes import wait_for_port
from lowkey.experiments import load_config
from tests.flower.loopback import PRIVATE

DEFENDS = (
    "A node gives its tasks, and with them the secrets of a round, to its own executor only: whoever else reaches its "
    "port on the same machine is refused."
)


def ask_for_a_task(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = AcquireTaskRequest(supported_task_types=["flwr-clientapp"]).SerializeToString()
    connection.request("POST", "/v1/runtime/acquire-task", body, {"content-type": "application/protobuf"})
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_task_is_for_the_nodes_own_executor(tmp_path: Path) -> None:
    prepare(tmp_path / "home", load_config(PRIVATE[0], PRIVATE[1], nodes=3))
    server, port = free_ports(2)
    with Processes(tmp_path / "logs") as processes:
        federation = LocalFederation(home=tmp_path / "home", processes=processes, port=server, node_ports=[port])
        federation.start_node(0)
        assert wait_for_port(port, processes._running["node-0000"], 60)
        assert ask_for_a_task(port) == 401
