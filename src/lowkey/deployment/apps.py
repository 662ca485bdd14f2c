"""Writing app directories: what Flower ships to the server and to all nodes."""

from __future__ import annotations

import keyword
import re
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

_NAME = re.compile(r"[a-z][a-z0-9-]*")


def new_app(directory: Path) -> Path:
    """Write a small app to edit: settings, a task with a model and a loader of local data; and a policy for nodes."""
    _write(directory, directory.resolve().name, "Federated learning with Lowkey", own_task=True)
    write_default_policy(directory / POLICY_FILE, app_config(directory))
    return directory


def preset_app(directory: Path, config: Config) -> Path:
    """Write the app of a preset: its settings, and nothing to edit."""
    package = _write(directory, "preset", f"Lowkey preset {config.name}", own_task=False)
    replace_file(directory / package / "lowkey.toml", config.to_toml().encode())
    return directory


def app_config(directory: Path) -> Config:
    """The settings of an app, resolved. Nothing of the app is run."""
    found = sorted(directory.glob("*/lowkey.toml"))
    if len(found) != 1:
        raise ConfigError(
            f"{directory} has {len(found)} files */lowkey.toml; the settings of an app are one file in its package"
        )
    return parse(read(found[0])).resolve()


def app_hash(directory: Path) -> str:
    """Digest of what ``flwr run`` ships; the same on every machine with the same release of Flower."""
    from flwr.cli.build import build_fab_from_disk

    if not (directory / "pyproject.toml").is_file():
        raise ConfigError(f"{directory} is not an app: it has no pyproject.toml; 'lowkey flower new' makes one")
    try:
        return bundle_digest(build_fab_from_disk(directory))
    except ValueError as error:
        raise ConfigError(f"{directory} is not an app that Flower can ship: {' '.join(str(error).split())}") from None


def _write(directory: Path, name: str, description: str, *, own_task: bool) -> str:
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
