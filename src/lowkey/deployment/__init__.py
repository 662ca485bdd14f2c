"""What a federation on real machines needs around its rounds: keys and lists of clients, certificates, apps and their
approval at a node, and a whole federation on this machine. It uses ``flwr``, but does not know the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.deployment.apps import app_config, app_encoder, app_features, app_hash, new_app
    from lowkey.deployment.certificates import new_certificates, new_executor_secret, new_node_key
    from lowkey.deployment.enrolment import (
        OwnKeys,
        fingerprint,
        new_identity,
        read_enrolment,
        read_identity,
        revoke,
        verify_keys_of,
        write_enrolment,
    )
    from lowkey.deployment.guard import approve, write_guard
    from lowkey.deployment.home import (
        APPROVED_FILE,
        EXECUTOR_SECRET,
        LEDGER_FILE,
        LIST_FILE,
        NODE_KEY,
        POLICY_FILE,
        SIZES_FILE,
    )
    from lowkey.deployment.local import LocalFederation, local_federation
    from lowkey.deployment.ownership import require_own
    from lowkey.deployment.policies import default_policy, read_policy, write_default_policy
    from lowkey.deployment.preparation import prepare
    from lowkey.deployment.processes import Processes, free_ports
    from lowkey.deployment.running import follow, run_locally
    from lowkey.deployment.status import node_status, note_error, note_training, read_status

_HOMES = {
    "apps": ("app_config", "app_encoder", "app_features", "app_hash", "new_app"),
    "certificates": ("new_certificates", "new_executor_secret", "new_node_key"),
    "enrolment": (
        "OwnKeys", "fingerprint", "new_identity", "read_enrolment", "read_identity", "revoke",
        "verify_keys_of", "write_enrolment",
    ),
    "guard": ("approve", "write_guard"),
    "home": (
        "APPROVED_FILE", "EXECUTOR_SECRET", "LEDGER_FILE", "LIST_FILE", "NODE_KEY", "POLICY_FILE", "SIZES_FILE",
    ),
    "local": ("LocalFederation", "local_federation"),
    "ownership": ("require_own",),
    "policies": ("default_policy", "read_policy", "write_default_policy"),
    "preparation": ("prepare",),
    "processes": ("Processes", "free_ports"),
    "running": ("follow", "run_locally"),
    "status": ("node_status", "note_error", "note_training", "read_status"),
}  # fmt: skip
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "APPROVED_FILE",
    "EXECUTOR_SECRET",
    "LEDGER_FILE",
    "LIST_FILE",
    "NODE_KEY",
    "POLICY_FILE",
    "SIZES_FILE",
    "LocalFederation",
    "OwnKeys",
    "Processes",
    "app_config",
    "app_encoder",
    "app_features",
    "app_hash",
    "approve",
    "default_policy",
    "fingerprint",
    "follow",
    "free_ports",
    "local_federation",
    "new_app",
    "new_certificates",
    "new_executor_secret",
    "new_identity",
    "new_node_key",
    "node_status",
    "note_error",
    "note_training",
    "prepare",
    "read_enrolment",
    "read_identity",
    "read_policy",
    "read_status",
    "require_own",
    "revoke",
    "run_locally",
    "verify_keys_of",
    "write_default_policy",
    "write_enrolment",
    "write_guard",
]
