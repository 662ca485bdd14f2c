"""By what runs are judged."""

from __future__ import annotations

from lowkey.experiments.scores import evaluated_rounds, headline, labels, values

IMAGES = {"round": 1, "accuracy": 0.876}
MORTALITY = {"round": 2, "accuracy": 0.9, "balanced_accuracy": 0.734, "auroc": 0.8}


def test_rare_events_are_judged_by_balanced_accuracy_and_auroc() -> None:
    assert headline(IMAGES) == ("accuracy",)
    assert headline({}) == ("accuracy",)
    assert headline(MORTALITY) == ("balanced_accuracy", "auroc")
    assert headline({"final_balanced_accuracy": 0.7, "final_auroc": 0.8}, "final_") == headline(MORTALITY)
    assert headline({"accuracy": 0.6, "balanced_accuracy": None, "auroc": None}) == ("accuracy",)


def test_rounds_without_a_test_are_left_out() -> None:
    assert evaluated_rounds([IMAGES, {"round": 2}, MORTALITY]) == [IMAGES, MORTALITY]


def test_for_people() -> None:
    assert labels(headline(MORTALITY)) == "balanced accuracy / AUROC"
    assert (values(MORTALITY, 2), values(IMAGES, 2), values({}, 2)) == ("0.73 / 0.80", "0.88", "–")
    assert values({"best_balanced_accuracy": 0.7, "best_auroc": 0.8}, 3, "best_") == "0.700 / 0.800"
