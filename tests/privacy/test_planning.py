"""Whether a signal can be seen, and the paper's own cost."""

from __future__ import annotations

import pytest

from lowkey.privacy import feasibility, paper_megabits, signal_to_noise

PARAMETERS = 1_663_370


@pytest.mark.parametrize(
    ("contributors", "noise", "measurements", "expected"),
    [
        (100, 1.54, 83_200, 0.225),
        (100, 1.2245, 83_200, 0.283),
        (100, 1.54, 1_663_400, 0.050),
        (20, 4.24, 83_200, 0.016),
    ],
)
def test_signal_to_noise(contributors: int, noise: float, measurements: int, expected: float) -> None:
    assert signal_to_noise(contributors, noise, measurements) == pytest.approx(expected, abs=5e-4)


def test_feasibility_in_one_line() -> None:
    assert feasibility(0.1).startswith("feasible")
    hopeless = feasibility(0.0999)
    assert hopeless.startswith("doubtful")
    assert "only small server steps (server.rate) add up to something; consider more clients" in hopeless
    assert "\n" not in hopeless


def test_cost_as_the_paper_counts() -> None:
    assert paper_megabits(PARAMETERS, 0.05, 200, 1 / 60) == pytest.approx(8.871, abs=5e-4)
