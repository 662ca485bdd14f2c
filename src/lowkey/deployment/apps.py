"""Writing app directories: what Flower ships to the server and to all nodes."""

from __future__ import annotations

import io
import keyword
import re
import zipfile
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template

from lowkey.deployment.guard import bundle_digest
from lowkey.deployment.home import POLICY_FILE
from lowkey.deployment.policies import write_default_policy
from lowkey.durable import replace_file
from lowkey.errors import ConfigError
from lowkey.experiments import Config, parse, read
from lowkey.tasks import TASKS

_NAME = re.compile(r"[a-z][a-z0-9-]*")


def new_app(directory: Path) -> Path:
    """Write a small app to edit: settings, a task with a model and a loader of local data; and a policy for nodes."""
    _write(directory, directory.resolve().name, "Federated learning with Lowkey", own_task=True)
    write_default_policy(directory / POLICY_FILE, app_config(directory))
    return directory


def preset_app(directory: Path, config: Config) -> Path:
    """Write the app of a preset: its settings, and nothing to edit."""
    _write(directory, "preset", f"Lowkey preset {config.name}", own_task=False, files=_files(config))
    update_preset_app(directory, config)
    return directory


def update_preset_app(directory: Path, config: Config) -> None:
    """Write the settings of a preset's app, and the files that its task needs, to an app that exists."""
    for name, file in _files(config).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(directory / name, file.read_bytes())
    replace_file(directory / "preset" / "lowkey.toml", config.to_toml().encode())


def _files(config: Config) -> Mapping[str, Path]:
    files = config.find_task().files(config.study)
    if missing := [name for name, file in files.items() if not file.is_file()]:
        raise ConfigError(f"{missing[0]} does not exist, and the app needs it; check the path")
    return files


def app_config(directory: Path) -> Config:
    """The settings of an app, resolved. Nothing of the app is run."""
    found = sorted(directory.glob("*/lowkey.toml"))
    if len(found) != 1:
        raise ConfigError(
            f"{directory} has {len(found)} files */lowkey.toml; the settings of an app are one file in its package"
        )
    return parse(read(found[0])).resolve()


def app_features(config: Config) -> str:
    """What the inputs of an app's model are, in words. Nothing of the app is run: of a task of its own, it says so."""
    if config.task not in TASKS:
        return f"those of the app's own task, {config.task}: read its code"
    return config.features() or "the data as they are"


def app_hash(directory: Path) -> str:
    """Digest of what ``flwr run`` ships; the same on every machine with the same release of Flower."""
    return bundle_digest(_bundle(directory))


def app_encoder(directory: Path, config: Config) -> str | None:
    """Digest of the encoder that comes with an app; None if its task has none.

    Raises
    ------
    ConfigError
        If the settings name an encoder that ``flwr run`` would not ship.
    """
    from lowkey.tabular import load_encoder

    name = getattr(config.data, "encoder", None)
    if name is None:
        return None
    with zipfile.ZipFile(io.BytesIO(_bundle(directory))) as bundle:
        if name not in bundle.namelist():
            raise ConfigError(
                f"data.encoder is {name}, which does not come with the app; copy it to {directory / name}, and add "
                f'"/{name}" to fab-include in {directory / "pyproject.toml"}'
            )
    return load_encoder(directory / name, config.data.encoder_digest).digest


def _bundle(directory: Path) -> bytes:
    from flwr.cli.build import build_fab_from_disk

    if not (directory / "pyproject.toml").is_file():
        raise ConfigError(f"{directory} is not an app: it has no pyproject.toml; 'lowkey flower new' makes one")
    try:
        return build_fab_from_disk(directory)
    except ValueError as error:
        raise ConfigError(f"{directory} is not an app that Flower can ship: {' '.join(str(error).split())}") from None


def _write(directory: Path, name: str, description: str, *, own_task: bool, files: Iterable[str] = ()) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"'{name}' cannot name an app; use small letters, digits and hyphens, with a letter first")
    package = name.replace("-", "_")
    if _is_taken(package):
        raise ConfigError(f"'{name}' cannot name an app: Python has a module or word '{package}'; choose another name")
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} exists and is not empty; choose another directory")
    values = {
        "name": name,
        "package": package,
        "description": description,
        "files": "".join(f', "/{file}"' for file in files),
    }
    (directory / package).mkdir(parents=True)
    for template in resources.files("lowkey.deployment").joinpath("template").iterdir():
        file = template.name.removesuffix(".tmpl")
        if not own_task and file in ("task.py", "lowkey.toml", "README.md"):
            continue
        place = directory if file in ("pyproject.toml", "README.md") else directory / package
        text = Template(template.read_text(encoding="utf-8")).substitute(values)
        replace_file(place / file, text.encode())
    replace_file(directory / package / "__init__.py", b'"""A Lowkey app."""\n')
    return package


def _is_taken(package: str) -> bool:
    """Whether an app's package would hide, or be hidden by, something else that can be imported."""
    found = find_spec(package)
    return keyword.iskeyword(package) or (found is not None and found.origin is not None)
