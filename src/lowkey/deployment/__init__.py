"""What a federation on real machines needs around its rounds: keys and lists of clients, certificates, apps and their
approval at a node, and a whole federation on this machine. Knows ``flwr``, and nothing of what is said over it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowkey.deployment.apps import app_hash, new_app
    from lowkey.deployment.certificates import new_certificates, new_node_key
    from lowkey.deployment.enrolment import (
        LIST_FILE,
        OwnKeys,
        directory_of,
        fingerprint,
        new_identity,
        read_enrolment,
        read_identity,
        write_enrolment,
    )
    from lowkey.deployment.guard import approve, write_guard
    from lowkey.deployment.local import LocalFederation, local_federation
    from lowkey.deployment.preparation import for_nodes, prepare
    from lowkey.deployment.processes import Processes, free_ports
    from lowkey.deployment.running import follow, run_locally

_HOME = {
    "LIST_FILE": "enrolment",
    "LocalFederation": "local",
    "OwnKeys": "enrolment",
    "Processes": "processes",
    "app_hash": "apps",
    "approve": "guard",
    "directory_of": "enrolment",
    "fingerprint": "enrolment",
    "follow": "running",
    "for_nodes": "preparation",
    "free_ports": "processes",
    "local_federation": "local",
    "new_app": "apps",
    "new_certificates": "certificates",
    "new_identity": "enrolment",
    "new_node_key": "certificates",
    "prepare": "preparation",
    "read_enrolment": "enrolment",
    "read_identity": "enrolment",
    "run_locally": "running",
    "write_enrolment": "enrolment",
    "write_guard": "guard",
}

__all__ = [
    "LIST_FILE",
    "LocalFederation",
    "OwnKeys",
    "Processes",
    "app_hash",
    "approve",
    "directory_of",
    "fingerprint",
    "follow",
    "for_nodes",
    "free_ports",
    "local_federation",
    "new_app",
    "new_certificates",
    "new_identity",
    "new_node_key",
    "prepare",
    "read_enrolment",
    "read_identity",
    "run_locally",
    "write_enrolment",
    "write_guard",
]


def __getattr__(name: str) -> Any:
    """Import on first use: the guard's program starts quickly, and Flower is needed only for what uses it."""
    if name not in _HOME:
        raise AttributeError(f"module 'lowkey.deployment' has no attribute {name!r}")
    return getattr(import_module(f"lowkey.deployment.{_HOME[name]}"), name)
