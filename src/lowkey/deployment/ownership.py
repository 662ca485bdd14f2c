"""Whether somebody else could change what a node trusts, or read its secrets."""

from __future__ import annotations

import os
from pathlib import Path

from lowkey.deployment.home import (
    APPROVED_FILE,
    EXECUTOR_SECRET,
    LEDGER_FILE,
    LIST_FILE,
    NODE_KEY,
    POLICY_FILE,
    SECRET_FILE,
    SIZES_FILE,
)
from lowkey.errors import ConfigError

_SECRETS = (SECRET_FILE, NODE_KEY, EXECUTOR_SECRET)
_TRUSTED = (*_SECRETS, LIST_FILE, POLICY_FILE, APPROVED_FILE, LEDGER_FILE, SIZES_FILE, "guard", "guard/*")


def require_own(home: Path) -> None:
    """Refuse a node's home if another account than this one and root can write it, or a file that the node trusts.

    Nor may others read its secrets. A file that is not there, or that this process is kept from, is not looked at.
    Directories above the home are not either: whoever can write them can replace it.
    """
    require_secret(*(path for name in _SECRETS for path in home.glob(name)))
    require_unwritable(home, *(path for pattern in _TRUSTED for path in sorted(home.glob(pattern))))


def require_secret(*paths: Path) -> None:
    """Refuse files that group or others can read or write."""
    for path in paths:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} can be read by others; protect it with: chmod 600 {path}")


def require_unwritable(*paths: Path) -> None:
    """Refuse files and directories that another account than this one and root owns or can write."""
    for path in paths:
        try:
            found = path.stat()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"{path} belongs to user {found.st_uid}, who could change what this node trusts; take it over with: "
                f"chown {os.geteuid()} {path}"
            )
        if found.st_mode & 0o022:
            raise ConfigError(
                f"{path} can be written by others, who could change what this node trusts; protect it with: chmod go-w "
                f"{path}"
            )
