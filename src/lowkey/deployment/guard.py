"""A node runs the apps that its owner has approved, and no other.

Flower ships an app from the server to the nodes and runs it there: whoever controls the server could ship another
app, or one of another kind. The guard is a directory of programs that replace Flower's own. The one for clients' apps
looks up the digest of what was shipped in a list of the node's own before anything is unpacked, and then runs what it
has just unpacked, in a fork of the standby (:mod:`lowkey.deployment.warm`); those for other kinds of apps refuse.

Guarantees
----------
Code and settings that are not on the list do not run at the node. It fails closed: also when the list is missing, or
when Flower has changed so much that the guard finds nothing to guard. This rests on the PATH of the node's executor:
the guard is in it, and Flower's own programs are not, or only after the guard. An app runs no compiled code from a
cache that an earlier process has left. Of an app that cannot be unpacked or loaded the server hears the kind of the
error alone.
"""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from lowkey.deployment.ownership import require_unwritable
from lowkey.deployment.processes import forbid_dumps
from lowkey.errors import ConfigError, PolicyRefused

PROGRAM = "flwr-clientapp"
_LIST_VARIABLE = "LOWKEY_APPROVED_APPS"
_MOST_BUNDLE_BYTES = 20_000_000  # Flower makes no bundle above 10 MB
_MOST_BYTES, _MOST_FILES = 100_000_000, 10_000  # unpacked
_PIECE_BYTES = 2**16
_SUPEREXEC = "import sys; from flwr.supercore.cli import flower_superexec as main; sys.exit(main())"


def write_guard(directory: Path, approved: Path) -> None:
    """Write the guard to a directory, to be put into the PATH of the node's executor."""
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    python = f"{shlex.quote(sys.executable)} -P"  # imports nothing from where the node happens to be started
    programs = {name: f"echo '{name} does not run at this node' >&2; exit 1" for name in TASK_TYPE_TO_COMMAND.values()}
    programs[PROGRAM] = f'{_LIST_VARIABLE}={shlex.quote(str(approved.resolve()))} exec {python} -m {__name__} "$@"'
    programs["flower-superexec"] = f'exec {python} -c {shlex.quote(_SUPEREXEC)} "$@"'
    directory.mkdir(parents=True, exist_ok=True, mode=0o755)
    for name, command in programs.items():
        program = directory / name
        program.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        program.chmod(0o755)


def bundle_digest(bundle: bytes) -> str:
    """SHA-256 of the names and contents of all files in a bundle, however they are compressed.

    Guarantees
    ----------
    What cannot be read is refused with ``PolicyRefused``, whatever is wrong with it. Files are unpacked piece by piece
    and counted as they come, so that the sizes that a bundle claims do not matter: it takes 20 MB of memory at most.
    """
    try:
        if len(bundle) > _MOST_BUNDLE_BYTES:
            raise PolicyRefused(f"the bundle of the app has {len(bundle)} bytes, which is too many; it is not used")
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            files = sorted(archive.infolist(), key=lambda file: file.filename)
            if not 0 < len(files) == len({file.filename for file in files}) <= _MOST_FILES:
                raise PolicyRefused("the bundle of the app holds a file twice, none or too many; it is not used")
            digests, left = [], _MOST_BYTES
            for file in files:
                digest, size = _digest(archive, file, left)
                digests.append((file.filename.encode(), digest))
                left -= size
    except PolicyRefused:
        raise
    except Exception as error:  # of the libraries that unpack it
        raise PolicyRefused(f"the bundle of the app cannot be read ({type(error).__name__}); it is not used") from None
    text = b"".join(len(name).to_bytes(4, "big") + name + digest for name, digest in digests)
    return hashlib.sha256(b"lowkey app 1\n" + text).hexdigest()


def _digest(archive: zipfile.ZipFile, file: zipfile.ZipInfo, most: int) -> tuple[bytes, int]:
    """Digest and size of one file of a bundle."""
    if file.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise PolicyRefused("the bundle of the app is compressed in another way than Flower's; it is not used")
    digest, size = hashlib.sha256(), 0
    with archive.open(file) as content:
        while piece := content.read(_PIECE_BYTES):
            size += len(piece)
            if size > most:
                raise PolicyRefused("the bundle of the app unpacks to too many bytes; it is not used")
            digest.update(piece)
    return digest.digest(), size


def approve(approved: Path, digest: str, comment: str) -> None:
    """Add an app to a node's list."""
    if digest not in _approved(approved, missing_ok=True):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(approved, flags, 0o644), "a", encoding="utf-8") as file:
            file.write(f"{digest}  {comment}\n")


def require_approved(bundle: bytes, approved: Path) -> None:
    """Refuse a bundle that is not on the list, and a list that others could have written."""
    digest, known = bundle_digest(bundle), _approved(approved)
    require_unwritable(approved.parent, approved)
    if digest not in known:
        raise PolicyRefused(
            f"the app {digest[:16]} is not approved at this node; its owner reviews it and runs 'lowkey flower approve'"
        )


def _approved(path: Path, *, missing_ok: bool = False) -> set[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        if missing_ok:
            return set()
        raise ConfigError(f"{path} is missing: no app is approved at this node; run 'lowkey flower approve'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}); restore it, or approve again") from None
    return {words[0] for line in lines if (words := line.split()) and not line.startswith("#")}


def guard(runtime: Any, approved: Path, directory: Path) -> None:
    """Change Flower's runtime of clients' apps so that it unpacks approved apps only, here, and runs nothing else.

    Parameters
    ----------
    runtime : object
        The module of Flower that runs clients' apps.
    approved : Path
        The node's list of approved apps.
    directory : Path
        New and empty directory to unpack to; apps in other places, and the place that the server names, are ignored.
    """
    install, loader = runtime.install_from_fab, runtime.get_load_client_app_fn
    unpacked: Any = directory / "nothing"

    def install_approved(bundle: bytes, **_options: Any) -> Any:
        nonlocal unpacked
        try:
            require_approved(bundle, approved)
        except ConfigError as error:  # its text is for the node's owner: Flower tells the server what is raised here
            print(error, file=sys.stderr)
            raise PolicyRefused("no list of approved apps can be used at this node; its own log says why") from None
        with _kind_alone("the app cannot be unpacked"):
            unpacked = install(bundle, directory, skip_prompt=True)
        return unpacked

    def load_unpacked(**_options: Any) -> Callable[..., Any]:
        load = loader(default_app_ref="", app_path=str(unpacked), multi_app=True)

        def load_app(*names: str) -> Any:
            with _kind_alone("the app cannot be loaded"):  # its modules are imported here, and may read data
                return load(*names)

        return load_app

    runtime.install_from_fab, runtime.get_load_client_app_fn = install_approved, load_unpacked


@contextmanager
def _kind_alone(what: str) -> Iterator[None]:
    """Of an error only its kind goes on to Flower, which tells it to the server; its text, to the node's own log."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also of a library that gives up in its own way
        print(f"{what}:", file=sys.stderr)
        traceback.print_exc()
        raise PolicyRefused(f"{what} ({type(error).__name__}); the node's own log says why") from None


def import_flower() -> tuple[Any, Any]:
    """Flower's runtime of clients' apps, and its program."""
    runtime: Any = import_module("flwr.supernode.runtime.run_clientapp")
    if "flwr.supernode.cli" not in sys.modules:
        _skip_package("flwr.supernode.cli", Path(runtime.__file__).parents[1] / "cli")
    return runtime, import_module("flwr.supernode.cli.flwr_clientapp")


def main() -> None:
    """The program that the node starts in place of Flower's."""
    forbid_dumps()
    runtime, program = import_flower()
    sys.argv[0] = PROGRAM
    with TemporaryDirectory(prefix="lowkey-app-") as fresh:
        os.environ["NUMBA_CACHE_DIR"] = f"{fresh}/numba"  # it is read by pickle, so it must be our own and new
        guard(runtime, Path(os.environ[_LIST_VARIABLE]), Path(fresh))
        program.flwr_clientapp()


def _skip_package(name: str, place: Path) -> None:
    """Let a module be imported without the rest of its package, which halves the work before every message."""
    package = ModuleType(name)
    package.__path__ = [str(place)]
    sys.modules[name] = package


if __name__ == "__main__":
    from lowkey.deployment.warm import hand_over

    code = hand_over(Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr")) / "standby", sys.argv[1:])
    if code is None:
        main()
    sys.exit(code)
