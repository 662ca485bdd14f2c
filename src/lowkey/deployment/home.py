"""What the files in a node's home are called."""

from __future__ import annotations

SECRET_FILE, PUBLIC_FILE, LIST_FILE = "identity.pem", "identity.toml", "enrolled.toml"
NODE_KEY, EXECUTOR_SECRET = "node.key", "executor.secret"
POLICY_FILE, LEDGER_FILE, APPROVED_FILE = "policy.toml", "ledger.jsonl", "approved.txt"
STATUS_FILE, SIZES_FILE = "status.json", "sizes.json"
