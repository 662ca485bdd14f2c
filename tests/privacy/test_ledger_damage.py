"""Files that were changed, cut, torn or written by others: refused with one line that tells what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from lowkey.errors import LedgerError
from lowkey.privacy import Ledger
from lowkey.privacy.chain import _seal
from tests.privacy.test_ledger import EVENT, PAPER, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def swap(lines: list[str], i: int, j: int) -> list[str]:
    lines = list(lines)
    lines[i], lines[j] = lines[j], lines[i]
    return lines


def edited(old: str, new: str, line: int) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        assert old in lines[line]
        return [text.replace(old, new) if number == line else text for number, text in enumerate(lines)]

    return change


@pytest.mark.parametrize(
    "damage",
    [
        edited("1.5", "1.6", 1),
        edited("1.5", "1.50", 3),
        edited("1.5", "9.5", 5),
        edited('"round":3', '"round":4', 6),  # the last line, which no other line seals
        edited("RELEASED", "ABORTED", 6),
        edited('"identity":"', '"identity":"0', 0),
        edited('"previous":"', '"previous":"0', 3),
        edited('"hash":"', '"hash":"0', 3),
        edited('{"previous"', '{"extra":1,"previous"', 3),
        lambda lines: lines[1:],
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: swap(lines, 0, 2),
        lambda lines: swap(lines, 5, 6),
        lambda lines: [*lines, lines[-1]],
        lambda lines: ["garbage", *lines],
        lambda lines: [*lines[:3], "", *lines[3:]],
        lambda lines: [*lines[:3], lines[3] + " ", *lines[4:]],
    ],
)
def test_changed_files_are_refused_and_left_alone(path: Path, damage: Callable[[list[str]], list[str]]) -> None:
    write(path)
    lines = path.read_text().splitlines()
    broken = "".join(line + "\n" for line in damage(lines))
    assert broken != path.read_text()
    path.write_text(broken)
    told = "not a file of the format" if broken.startswith("garbage") else "restore the file from a copy"
    for opened in (Ledger.read, lambda p: Ledger(p, run="first")):
        with pytest.raises(LedgerError, match=rf"ledger\.jsonl.*{told}"):
            opened(path)
    assert path.read_text() == broken


def test_torn_last_line_tells_how_to_recover(path: Path) -> None:
    write(path)
    whole = path.read_bytes()
    head = Ledger.read(path).head
    path.write_bytes(whole + whole.splitlines()[-1][:40])
    with pytest.raises(LedgerError, match=r"half-written line.*remove this line and start again"):
        Ledger(path, run="first")
    path.write_bytes(whole)  # the line removed, as told
    assert Ledger.read(path).head == head


def test_lines_cut_off_at_the_end_are_missed_by_those_who_know_the_head(path: Path) -> None:
    write(path)
    head = Ledger.read(path).head
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:5]))
    assert not Ledger.read(path).knows(head)
    path.write_text("")
    assert not Ledger.read(path).knows(head)


def test_heads_place_a_checkpoint_in_the_chain(path: Path) -> None:
    with Ledger(path, run="first") as ledger:
        heads = [ledger.head]
        for number in (1, 2):
            ledger.intend(number, 0, EVENT)
            heads.append(ledger.head)
    reader = Ledger.read(path)
    assert len(set(heads)) == 3
    assert all(reader.knows(head) for head in heads)
    assert reader.knows("lowkey ledger 2")  # of a checkpoint from before the first record
    stranger = Ledger(None, run="first")
    stranger.intend(1, 0, PAPER)
    assert not reader.knows(stranger.head)


def sealed(record: dict[str, object]) -> str:
    """A first line that is whole, whatever it says."""
    return _seal(Ledger.FORMAT, record)[0] + "\n"


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_json_is_not_sealed(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        _seal(Ledger.FORMAT, {"noise_multiplier": number})


INTENT = {"state": "INTENT", "run": "first", "round": 1, "attempt": 0, "event": EVENT.to_json()}


@pytest.mark.parametrize(
    "record",
    [
        INTENT | {"client": 5},
        INTENT | {"event": EVENT.to_json() | {"client": 5}},
        INTENT | {"event": EVENT.to_json() | {"noise_multiplier": -1.0}},
        INTENT | {"event": EVENT.to_json() | {"noise_multiplier": "1.5"}},
        INTENT | {"round": "1"},
        INTENT | {"state": "PLANNED"},
        {k: v for k, v in INTENT.items() if k != "event"},
        {k: v for k, v in INTENT.items() if k != "run"},
        INTENT | {"event": EVENT.to_json() | {"noise_multiplier": 10**400}},
        {"identity": 5},
        {"identity": "5", "run": "first"},
        INTENT | {"state": "RELEASED"},
        {"state": "RELEASED", "run": "first", "round": 1, "attempt": 0},
    ],
)
def test_well_sealed_nonsense_is_refused(path: Path, record: dict[str, object]) -> None:
    path.write_text(sealed(INTENT))
    assert Ledger.read(path).events == (EVENT,)
    path.write_text(sealed(record))
    with pytest.raises(LedgerError, match="line 1 makes no sense"):
        Ledger.read(path)


def test_a_second_identity_is_refused(path: Path) -> None:
    write(path, rounds=1)
    with Ledger(path, run="first") as ledger, pytest.raises(LedgerError, match="fields are missing"):
        ledger._append({"identity": "another"})


@pytest.mark.parametrize(
    "first_line",
    [
        json.dumps({"round": 1, "event": EVENT.to_json()}),  # of version 0.1
        sealed(INTENT).replace("lowkey ledger 3", "lowkey ledger 4").strip(),
        "[" * 100_000,
        "",
    ],
)
def test_other_formats_are_refused_clearly(path: Path, first_line: str) -> None:
    path.write_text(first_line + "\n")
    with pytest.raises(LedgerError, match=r"not a file of the format 'lowkey ledger 3'.*another version") as error:
        Ledger(path, run="first")
    assert "\n" not in str(error.value)


def test_a_ledger_of_format_2_goes_on_and_its_aborted_attempts_count(path: Path) -> None:
    """It has no identity, so the hash of its first line is one; records after it are chained to it."""
    lines, head = [], "lowkey ledger 2"
    for record in (INTENT, INTENT | {"state": "ABORTED"}, INTENT | {"attempt": 1}):
        fields = {k: v for k, v in record.items() if k != "event" or record["state"] == "INTENT"}
        line, head = _seal(head, fields)
        lines.append(line + "\n")
    path.write_text("".join(lines))
    old = Ledger.read(path)
    assert old.events == (EVENT, EVENT)
    assert old.identity == json.loads(lines[0])["hash"]
    with Ledger(path, run="first") as ledger:
        assert (ledger.identity, ledger.head) == (old.identity, head)
        ledger.release(1, 1)
    assert path.read_text().startswith("".join(lines))
    again = Ledger.read(path)
    assert (again.identity, again.knows(head), len(again.events)) == (old.identity, True, 2)
    path.write_text("")
    with Ledger(path, run="first") as new:  # an empty file of the format before is a new one
        assert new.head != "lowkey ledger 2"
    assert path.read_text().startswith('{"previous":"lowkey ledger 3"')
