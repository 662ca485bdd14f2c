"""What clients insist on: every bound refuses on its own, and caps end contributions, not participation."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowkey.errors import ConfigError, InvalidInput, PolicyRefused
from lowkey.privacy import ClientLedger, Policy, Terms, server_epsilon

TERMS = Terms(
    noise_multiplier=1.54, clip_rule="norm at most 0.47", bits=20, length=83_200, members=160, min_survivors=144,
    honest=128, neighbours=50, shares_needed=34, delta=1e-5, scheme="fl-cs-dp", sampling="poisson",
    codec="dct(ratio=0.05)", public_seed=7, model_size=1_663_370,
)  # fmt: skip
POLICY = Policy(
    min_noise_multiplier=1.5, min_roster=160, min_honest=100, min_tolerated_colluders=16, max_participations=3,
    max_epsilon=6.0, delta=1e-5,
)  # fmt: skip


def test_terms_within_all_bounds_are_accepted() -> None:
    POLICY.check(TERMS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"noise_multiplier": 1.4999}, r"noise_multiplier is 1\.4999; .* below 1\.5 \(min_noise_multiplier\)"),
        ({"members": 159}, r"members is 159; .* below 160 \(min_roster\)"),
        ({"honest": 99}, r"honest is 99; .* below 100 \(min_honest\)"),
        ({"honest": 129}, r"tolerated colluders is 15; .* below 16 \(min_tolerated_colluders\)"),
        ({"delta": 1.1e-5}, r"delta is 1\.1e-05; .* above 1e-05 \(delta\)"),
    ],
)
def test_each_bound_refuses_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyRefused, match=said) as error:
        POLICY.check(replace(TERMS, **change))
    assert "this client takes no part" in str(error.value)


def test_a_client_that_fears_three_colluders_refuses_terms_that_bear_two() -> None:
    """Of 144 survivors 142 must be honest: two may tell the server their noise."""
    wary, two, three = replace(POLICY, min_tolerated_colluders=3), *(replace(TERMS, honest=h) for h in (142, 141))
    assert (two.colluders, three.colluders) == (2, 3)
    said = "tolerated colluders is 2; this client takes no part below 3 (min_tolerated_colluders)"
    with pytest.raises(PolicyRefused) as error:
        wary.check(two)
    assert str(error.value) == said
    wary.check(three)
    replace(wary, min_tolerated_colluders=2).check(two)
    replace(wary, min_tolerated_colluders=0).check(replace(TERMS, honest=144))


def test_two_thirds_of_the_members_must_survive() -> None:
    small = replace(POLICY, min_honest=1)
    small.check(replace(TERMS, min_survivors=107, honest=91))
    with pytest.raises(PolicyRefused, match=r"min_survivors is 106.*below 107.*two thirds"):
        small.check(replace(TERMS, min_survivors=106, honest=90))


def test_terms_under_which_one_could_never_contribute_are_refused() -> None:
    with pytest.raises(PolicyRefused, match=r"epsilon of one participation is 2\.67.*max_epsilon"):
        replace(POLICY, max_epsilon=2.6).check(TERMS)


def contributions(policy: Policy, terms: Terms, rounds: int = 6) -> int:
    """Rounds with data in them before the first without."""
    ledger = ClientLedger(None)
    for number in range(1, rounds + 1):
        may = policy.limit_reached(ledger, terms) is None
        ledger.join("run", number, 0, noise_multiplier=terms.noise_multiplier, coin=terms.coin, contributes=may)
    assert len(ledger.entries) == rounds  # it stays on all rosters
    return len(ledger.participations())


def test_client_stops_at_its_participations() -> None:
    assert contributions(POLICY, TERMS) == 3
    assert contributions(replace(POLICY, max_participations=1), TERMS) == 1


def test_client_stops_at_its_epsilon() -> None:
    """ε after 1, 2, 3, 4 rounds at z = 1.54: 2.6727, 3.9671, 5.0181, 5.9414."""
    roomy = replace(POLICY, max_participations=100)
    assert contributions(roomy, TERMS) == 4
    assert contributions(replace(roomy, max_epsilon=5.0), TERMS) == 2
    assert contributions(replace(roomy, max_epsilon=5.03), TERMS) == 3


def test_secret_coins_allow_more_rounds() -> None:
    policy = replace(POLICY, max_participations=100, max_epsilon=3.0)
    assert contributions(policy, TERMS) == 1
    assert contributions(policy, replace(TERMS, coin=0.25)) == 6


def test_apps_and_runs_add_up_each_with_its_own_noise() -> None:
    """μ² = 1/1² + 1/1.54², which is one round of z = 1 / √(μ²)."""
    ledger = ClientLedger(None)
    ledger.join("earlier/0", 1, 0, noise_multiplier=1.0)
    both = server_epsilon((1 + 1.54**-2) ** -0.5, 1, 1e-5)
    assert POLICY.spent(ledger) == pytest.approx(server_epsilon(1.0, 1, 1e-5))
    assert POLICY.spent(ledger, TERMS) == pytest.approx(both)
    assert replace(POLICY, max_epsilon=both - 0.01).limit_reached(ledger, TERMS) is not None
    assert replace(POLICY, max_epsilon=both + 0.01).limit_reached(ledger, TERMS) is None


def test_coins_of_many_kinds_compose_between_their_extremes() -> None:
    ledger = ClientLedger(None)
    for number in range(1, 7):
        ledger.join("study/0", number, 0, noise_multiplier=1.54, coin=(0.25, 0.5)[number % 2])
    least, most = (server_epsilon(1.54, 6, 1e-5, coin=coin) for coin in (0.25, 0.5))
    assert least < POLICY.spent(ledger) < most


def test_a_bound_that_is_reached_is_named_with_what_is_used() -> None:
    ledger = ClientLedger(None)
    assert POLICY.limit_reached(ledger, TERMS) is None
    ledger.join("study/0", 1, 0, noise_multiplier=1.54)
    tight = replace(POLICY, max_epsilon=3.0)
    assert tight.limit_reached(ledger, TERMS) == "one more would make ε 3.967, above 3 (max_epsilon in policy.toml)"
    once = replace(POLICY, max_participations=1)
    said = "1 of 1 participations are used (max_participations in policy.toml)"
    assert once.limit_reached(ledger, TERMS) == said


@pytest.mark.parametrize(("count", "epsilon"), [(1, 2.6727), (3, 5.0181), (10, 10.3277)])
def test_servers_view(count: int, epsilon: float) -> None:
    assert server_epsilon(1.54, count, 1e-5) == pytest.approx(epsilon, abs=1e-3)


def test_terms_have_one_digest_on_every_machine() -> None:
    text = (
        '{"bits":20,"clip_rule":"norm at most 0.47","codec":"dct(ratio=0.05)","coin":1.0,"delta":1e-05,'
        '"failure":0.0,"features":"",'
        '"graph":"worst-case","honest":128,'
        '"length":83200,"members":160,"min_survivors":144,"model_size":1663370,"neighbours":50,"noise_multiplier":1.54,'
        '"persons":null,"public_seed":7,"question":"",'
        '"sampling":"poisson","scheme":"fl-cs-dp","shares_needed":34,"strays":0,"unit":"client"}'
    )
    assert TERMS.digest() == hashlib.sha256(f"lowkey terms 5\n{text}".encode()).digest()
    assert TERMS.digest().hex() == "91992a61a39f07e4b7814a30d966f60a080e28221d10da6b32f8c9708e0eded8"
    assert replace(TERMS, coin=1).digest() == replace(TERMS, coin=1.0).digest()
    assert replace(TERMS, noise_multiplier=2).digest() == replace(TERMS, noise_multiplier=2.0).digest()


def test_every_field_is_in_the_digest() -> None:
    changed: dict[str, Any] = {
        "noise_multiplier": 1.55, "clip_rule": "norm at most 0.48", "bits": 16, "length": 1, "members": 161,
        "min_survivors": 145, "honest": 127, "graph": "random", "failure": 1e-15, "strays": 3, "neighbours": 20,
        "shares_needed": 11, "delta": 1e-6,
        "scheme": "fl-std-dp", "sampling": "fixed", "coin": 0.5, "codec": "dct(ratio=0.1)", "public_seed": 8,
        "model_size": 5, "unit": "person", "persons": 9, "features": "sha256 12", "question": "how many",
    }  # fmt: skip
    assert changed.keys() == TERMS.to_json().keys()
    digests = {replace(TERMS, **{name: value}).digest() for name, value in changed.items()}
    assert len(digests | {TERMS.digest()}) == len(changed) + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": "20"}, "bits is '20'; it must be a whole number"),
        ({"bits": True}, "must be a whole number"),
        ({"coin": None}, "coin is None; it must be a number"),
        ({"honest": 145}, "none may exceed the next"),
        ({"honest": 0}, "honest is 0"),
        ({"min_survivors": 161}, "none may exceed the next"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier is nan"),
        ({"neighbours": 0}, "neighbours is 0"),
        ({"coin": 0.0}, "coin is 0.0"),
    ],
)
def test_impossible_terms_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(TERMS, **change)


FILE = """
format = 1
min_noise_multiplier = 1.5
min_roster = 160
min_honest = 100
min_tolerated_colluders = 16
max_participations = 3
max_epsilon = 6
delta = 1e-5
"""


def test_policy_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    assert Policy.from_toml(path) == POLICY
    path.write_text(POLICY.to_toml())
    assert Policy.from_toml(path) == POLICY


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("min_honest", "min_honnest", "'min_honnest' is unknown; did you mean 'min_honest'"),
        ("min_honest = 100\n", "", "'min_honest' is missing"),
        (
            "min_tolerated_colluders",
            "max_colluders",
            "'max_colluders' is unknown; did you mean 'min_tolerated_colluders'",
        ),
        ("= 16\nmax_p", "= -1\nmax_p", "min_tolerated_colluders is -1"),
        ("= 100", "= -1", "min_honest is -1"),
        ("= 100", "= 'many'", "min_honest is 'many'; it must be of type int"),
        ("= 6", "= inf", "max_epsilon is inf"),
        ("delta = 1e-5", "delta = 1.0", "delta is 1.0"),
        ("= 100", "", "policy.toml"),
        ("format = 1\n", "", "it has no format: it is of an earlier release.*add the line: format = 1"),
        ("format = 1", "format = 2", "its format is 2, and this release of Lowkey reads 1; install the release"),
        ("format = 1", "format = true", "its format is True"),
        ("= 1.5", f"= 1{'0' * 400}", "policy.toml"),
        ("= 1.5", f"= {'[' * 5000}{']' * 5000}", "policy.toml"),
    ],
)
def test_wrong_policy_files_are_named_with_their_fault(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    assert old in FILE
    path.write_text(FILE.replace(old, new))
    with pytest.raises(ConfigError, match=message) as error:
        Policy.from_toml(path)
    assert str(path) in str(error.value)


def test_missing_policy_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        Policy.from_toml(tmp_path / "none.toml")
