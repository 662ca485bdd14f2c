"""The digest of public rules: recorded, and another one for other rules."""

from __future__ import annotations

import pytest

from lowkey.errors import InvalidInput
from lowkey.tabular import Hashed, Limits, Listed, Rule
from lowkey.tasks import TASKS, Study
from lowkey.tasks.mortality import AdmissionSettings
from lowkey.tasks.mortality.maps import rules_digest

RULES: dict[str, Rule] = {"age": Limits(20, 60), "kind": Listed(("a", "b")), "code": Hashed({2: 8, None: 64})}


def features(**settings: object) -> str:
    return TASKS["mortality"].features_of(Study(data=AdmissionSettings(**settings)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "digest"),
    [
        ("sih-sus", "3f4051a7d3b3bbbaf0751faa02fda1755a222c06874b430f441372938641a18b"),
        ("diabetes130", "06adb9f35d00db2bd13e35af0b311604941b304774adf12dd5abb6f69f801a01"),
        ("synthetic", "b3eedf6905077b138b1d1c06c19c466c9d4a583cd4ba95d732551e31cfe302d4"),
    ],
)
def test_the_digests_are_the_recorded_ones(source: str, digest: str) -> None:
    assert features(name=source, encoding="public").endswith(f", sha256 {digest}")


def test_other_features_and_rules_have_other_digests() -> None:
    made = [rules_digest(names, RULES) for names in (["age"], ["kind"], ["age", "kind"], ["kind", "age"], RULES)]
    others: dict[str, Rule] = {
        "age": Limits(20, 61), "kind": Listed(("b", "a")), "code": Hashed({2: 8, 3: 64}),
    }  # fmt: skip
    made += [rules_digest(RULES, RULES | {name: rule}) for name, rule in others.items()]
    assert len(set(made)) == len(made)
    assert rules_digest(RULES, RULES) == rules_digest(RULES, RULES | {"age": Limits(20.0, 60.0)})


def test_fitted_features_say_so() -> None:
    assert features(name="sih-sus") == "ranges and vocabularies fitted to all training rows, outside of any ε"


def test_a_feature_without_a_public_rule_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the feature kind has no public rule"):
        rules_digest(["kind"], {"age": Limits(20, 60)})
