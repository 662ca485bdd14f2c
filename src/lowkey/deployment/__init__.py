"""What a federation on real machines needs around its rounds: keys and lists of clients, certificates, apps and their
approval at a node, and a whole federation on this machine. It uses ``flwr``, but does not know the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.deployment.apps import app_hash, new_app
    from lowkey.deployment.certificates import new_certificates, new_node_key
    from lowkey.deployment.enrolment import (
        LIST_FILE,
        OwnKeys,
        fingerprint,
        new_identity,
        read_enrolment,
        read_identity,
        verify_keys_of,
        write_enrolment,
    )
    from lowkey.deployment.guard import approve, write_guard
    from lowkey.deployment.local import LocalFederation, local_federation
    from lowkey.deployment.preparation import prepare
    from lowkey.deployment.processes import Processes, free_ports
    from lowkey.deployment.running import follow, run_locally
    from lowkey.deployment.status import read_status, write_status

_HOMES = {
    "apps": ("app_hash", "new_app"),
    "certificates": ("new_certificates", "new_node_key"),
    "enrolment": (
        "LIST_FILE", "OwnKeys", "fingerprint", "new_identity", "read_enrolment", "read_identity", "verify_keys_of",
        "write_enrolment",
    ),
    "guard": ("approve", "write_guard"),
    "local": ("LocalFederation", "local_federation"),
    "preparation": ("prepare",),
    "processes": ("Processes", "free_ports"),
    "running": ("follow", "run_locally"),
    "status": ("read_status", "write_status"),
}  # fmt: skip
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "LIST_FILE",
    "LocalFederation",
    "OwnKeys",
    "Processes",
    "app_hash",
    "approve",
    "fingerprint",
    "follow",
    "free_ports",
    "local_federation",
    "new_app",
    "new_certificates",
    "new_identity",
    "new_node_key",
    "prepare",
    "read_enrolment",
    "read_identity",
    "read_status",
    "run_locally",
    "verify_keys_of",
    "write_enrolment",
    "write_guard",
    "write_status",
]
