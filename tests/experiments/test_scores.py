"""By what runs are judged."""

from __future__ import annotations

from lowkey.experiments.scores import evaluated_rounds, labels, values
from lowkey.tasks import FASHION_MNIST, MORTALITY

IMAGES = {"round": 1, "accuracy": 0.876}
DEATHS = {"round": 2, "accuracy": 0.9, "balanced_accuracy": 0.734, "auroc": 0.8}


def test_rare_events_are_judged_by_balanced_accuracy_and_auroc() -> None:
    assert [score.name for score in FASHION_MNIST.scores] == ["accuracy"]
    assert [score.name for score in MORTALITY.scores] == ["balanced_accuracy", "auroc"]


def test_rounds_without_a_test_are_left_out() -> None:
    assert evaluated_rounds([IMAGES, {"round": 2}, {"round": 3, "accuracy": None}, DEATHS], FASHION_MNIST.scores) == [
        IMAGES,
        DEATHS,
    ]
    assert evaluated_rounds([IMAGES, DEATHS], MORTALITY.scores) == [DEATHS]


def test_for_people() -> None:
    images, deaths = FASHION_MNIST.scores, MORTALITY.scores
    assert (labels(images), labels(deaths)) == ("accuracy", "balanced accuracy / AUROC")
    assert (values(DEATHS, deaths, 2), values(IMAGES, images, 2), values({}, images, 2)) == ("0.73 / 0.80", "0.88", "–")
    assert values({"best_balanced_accuracy": 0.7, "best_auroc": 0.8}, deaths, 3, "best_") == "0.700 / 0.800"
    assert values({"auroc": 0.8}, deaths, 1) == "– / 0.8"
