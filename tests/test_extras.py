"""Install lines, in messages and in documents: what they ask for exists, at the versions that were tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from lowkey.extras import how_to_install

ROOT = Path(__file__).parent.parent
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "deploy" / "Dockerfile"]
COMMAND = re.compile(r"pip install (?P<options>[^'`]*)'(?P<place>[^'\[]*)\[(?P<extras>[a-z,]+)\]'")


def check(command: str) -> None:
    found = COMMAND.search(command.replace("\\\n", " "))
    assert found, command
    assert "constraints.txt" in found["options"], command
    assert found["place"] in (".", "/src", "flwr"), f"{command}: no package index has Lowkey"
    if found["place"] != "flwr":
        assert set(found["extras"].split(",")) <= EXTRAS, command


@pytest.mark.parametrize("library", ["torch", "flwr", "polars", "sklearn", "nacl", "tensorboard"])
def test_the_message_installs_an_extra_from_a_clone(library: str) -> None:
    message = how_to_install(ModuleNotFoundError(name=f"{library}.inner"))
    assert message is not None
    assert "\n" not in message
    assert "from a clone" in message
    check(message)


def test_other_missing_modules_are_defects() -> None:
    assert how_to_install(ModuleNotFoundError(name="lowkey.nonsense")) is None
    assert how_to_install(ModuleNotFoundError()) is None


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_install_lines_of_documents(file: Path) -> None:
    for command in re.findall(r"pip install(?:[^'\n`]|\\\n)*'[^']*'", file.read_text(encoding="utf-8")):
        check(command)


def test_the_check_sees_a_bad_line() -> None:
    for bad in ("pip install '.[torch]'", "pip install -c constraints.txt 'lowkey[torch]'",
                "pip install -c constraints.txt '.[torhc]'"):  # fmt: skip
        with pytest.raises(AssertionError):
            check(bad)
