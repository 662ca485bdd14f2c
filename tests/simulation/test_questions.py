"""Questions among the rounds of a run: statistics before, evaluations by clients on the way and at the end."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import dp_accounting
import numpy as np
import pytest
import scipy.special
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray

import lowkey
from lowkey.analytics import QUESTIONS, Answer, Columns, Estimate, Total
from lowkey.errors import BudgetExhausted, ConfigError, InvalidInput, LowkeyError
from lowkey.experiments import Config, parse
from lowkey.federation import RunState
from lowkey.federation.round import _noted
from lowkey.learning import Objective, RiskHead, auroc, logistic_loss, rare_event_metrics
from lowkey.privacy import ClientLedger
from lowkey.rng import ReplaySecrets
from lowkey.simulation import evaluate_run, evaluation_config, run
from lowkey.tasks import TASKS, Score, Table, Task

CLIENTS, FEATURES, ROWS = 40, 3, 60
asked_for: list[int] = []


def rows_of(client: int, part: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.intp]]:
    """Rows of norm at most 1, their outcomes, and persons with two rows each."""
    rng = np.random.default_rng([client, part])
    rows = rng.uniform(-0.5, 0.5, (ROWS, FEATURES)).astype(np.float32)
    died = rng.random(ROWS) < scipy.special.expit(6 * rows[:, 0] - 1)
    return rows, died.astype(np.float32), np.arange(ROWS) // 2


def table_of(client: int) -> Table:
    asked_for.append(client)
    rows, died, persons = rows_of(client, 0)
    return Table({"age": 50.0 + 40 * rows[:, 0].astype(np.float64), "died": died.astype(np.float64)}, persons)


@dataclass
class Made:
    """Datasets of all clients, made on access."""

    one: Any

    def __len__(self) -> int:
        return CLIENTS

    def __getitem__(self, client: int) -> Any:
        return self.one(client)


TINY = Task(
    model=lambda study: RiskHead(FEATURES, bias=False, frequency=0.3),
    clients=lambda study: Made(lambda client: rows_of(client, 0)),
    held_out=lambda study: Made(lambda client: rows_of(client, 1)),
    test=lambda study: tuple(map(np.concatenate, zip(*(rows_of(c, 1)[:2] for c in range(CLIENTS)), strict=True))),
    tables=lambda study: Made(table_of),
    objective=lambda study: Objective(loss=logistic_loss, metrics=rare_event_metrics),
    scores=(Score("auroc", "AUROC"),),
)  # fmt: skip


@pytest.fixture(autouse=True)
def task() -> Iterator[None]:
    TASKS._parts["tiny"] = TINY
    asked_for.clear()
    yield
    del TASKS._parts["tiny"]


AGE = {"kind": "mean", "name": "age", "limits": {"age": [0.0, 100.0]}}


def table(epsilon: float | None = 500.0, **more: Any) -> dict[str, Any]:
    """The tables of a run that asks, learns and evaluates."""
    made: dict[str, Any] = {
        "task": "tiny",
        "federation": {"scheme": "fl-std" if epsilon is None else "fl-std-dp", "clients": CLIENTS, "cohort": CLIENTS},
        "training": {"kind": "full-gradient"},
        "server": {"rate": 30.0 if epsilon is None else 5.0},
        "schedule": {"rounds": 4},
        "questions": [AGE],
        "evaluation": {"where": "clients", "question": {"rows": ROWS, "prevalence": 0.3}},
        "runtime": {"workers": 0},
    }
    if epsilon is not None:
        made["privacy"] = {"clip": "normalise", "epsilon": epsilon, "dropouts": 0.0, "colluders": 0.0}
    for name, value in more.items():
        made[name] = made.get(name, {}) | value if isinstance(value, dict) else value
    return made


def config(epsilon: float | None = 500.0, **more: Any) -> Config:
    return parse(table(epsilon, **more)).resolve()


def metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text("utf-8").splitlines()]


TRUE_AGE = float(np.mean([table_of(c).columns["age"] for c in range(CLIENTS)]))


@pytest.mark.parametrize("epsilon", [None, 500.0], ids=["open", "private"])
def test_a_run_asks_learns_and_evaluates(tmp_path: Path, epsilon: float | None) -> None:
    result = run(config(epsilon, evaluation={"every": 2}), tmp_path / "run", secrets=ReplaySecrets(1))
    lines = metrics(tmp_path / "run")
    assert [line["answer"]["question"] if "answer" in line else "learns" for line in lines] == [
        "age", "learns", "learns", "evaluation", "learns", "learns", "evaluation"]  # fmt: skip
    age = lines[0]["answer"]["estimates"]["age"]
    assert age["value"] == pytest.approx(TRUE_AGE, abs=0.05 if epsilon is None else 2.0)
    assert age["low"] - 1e-4 <= TRUE_AGE <= age["high"] + 1e-4
    low, high = result["final_auroc_interval"]
    assert low <= result["final_auroc"] <= high
    assert result["final_auroc"] == pytest.approx(result["final_auroc_server"], abs=0.01 if epsilon is None else 0.03)
    assert low <= result["final_auroc_server"] <= high
    answers = json.loads((tmp_path / "run" / "answers.json").read_text("utf-8"))
    assert [one["question"] for one in answers] == ["age", "evaluation", "evaluation"]
    assert [one["round"] for one in answers] == [1, 4, 7]
    assert all("auroc" not in line for line in lines if "answer" not in line), "the server does not look on its own"


def test_questions_change_nothing_of_what_is_learned(tmp_path: Path) -> None:
    """Without noise that differs: the same weights, average included, with and without questions around them."""
    averaged = {"averaging": {"kind": "tail", "start": 3}}
    found = []
    for name, made in (
        ("final_auroc_server", table(None, **averaged, evaluation={"every": 1})),
        ("final_auroc", table(None, **averaged) | {"questions": [], "evaluation": {"where": "server"}}),
    ):
        found.append(run(parse(made).resolve(), tmp_path / name)[name])
    assert found[0] == found[1]


def test_what_is_printed_is_what_an_independent_accountant_finds(tmp_path: Path) -> None:
    """One question, 6 rounds that learn and 5 evaluations: the ledger's events composed by another library's hands."""
    made = config(
        1.0, schedule={"rounds": 6, "calibration": 2}, evaluation={"every": 1}, privacy={"delta": 1e-6, "asking": 0.3}
    )
    assert made.privacy is not None
    assert made.privacy.questions == 1 + 6
    run(made, tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text("utf-8").splitlines()[1:]]
    noises = [r["record"]["event"]["noise_multiplier"] for r in records if r["record"]["state"] == "INTENT"]
    assert len(noises) == 1 + 6 + 6
    assert len(set(noises)) == 2
    by_formula = math.sqrt(sum(1 / z**2 for z in noises))
    accountant = PLDAccountant()
    for z in noises:
        accountant.compose(dp_accounting.GaussianDpEvent(z))
    printed = metrics(tmp_path / "run")[-1]["epsilon_pld"]
    assert printed == pytest.approx(accountant.get_epsilon(1e-6), abs=2e-3)
    assert printed == pytest.approx(_gaussian_epsilon(by_formula, 1e-6), abs=2e-3)
    assert printed <= 1.0
    reserved = PLDAccountant()
    asking, learning = float(made.privacy.asking_noise), float(made.privacy.noise_multiplier)
    reserved.compose(dp_accounting.GaussianDpEvent(asking), 7 + 1)
    reserved.compose(dp_accounting.GaussianDpEvent(learning), 6 + 1)
    assert reserved.get_epsilon(1e-6) == pytest.approx(1.0, abs=2e-3), "spare attempts included, the target is met"
    assert 8 / asking**2 == pytest.approx(0.3 * (8 / asking**2 + 7 / learning**2), rel=0.05)


def _gaussian_epsilon(mu: float, delta: float) -> float:
    def excess(epsilon: float) -> float:
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(scipy.special.ndtr(a) - math.exp(epsilon) * scipy.special.ndtr(b)) - delta

    return float(scipy.optimize.brentq(excess, 1e-6, 50))


def test_a_question_beyond_the_budget_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    shared = {"ledger": str(tmp_path / "ledger.jsonl")}
    only = table(1.0, federation=shared, schedule={"rounds": 0}) | {"evaluation": {}}
    for name in ("first", "spare"):  # what was set aside for a spare attempt is there for another run
        run(parse(only).resolve(), tmp_path / name)
    before, lines = len(asked_for), (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExhausted, match=r"privacy\.epsilon = 1\.0"):
        run(parse(only).resolve(), tmp_path / "third")
    assert len(asked_for) == before
    assert (tmp_path / "ledger.jsonl").read_bytes() == lines


def test_statistics_alone_have_the_whole_budget_and_need_no_model(tmp_path: Path) -> None:
    only = table(1.0, schedule={"rounds": 0}) | {"evaluation": {}}
    result = run(parse(only).resolve(), tmp_path / "run")
    assert "final_auroc" not in result
    assert result["epsilon_pld"] < 1.0 < result["epsilon_server_limit"] + 1e-3
    (answer,) = json.loads((tmp_path / "run" / "answers.json").read_text("utf-8"))
    age = answer["estimates"]["age"]
    width = age["high"] - age["low"]  # as far again beyond the interval: six deviations of the noise
    assert age["low"] - width <= TRUE_AGE <= age["high"] + width
    assert width > 0


def test_where_nothing_is_learned_no_other_round_is_answered() -> None:
    scheme = parse(table(1.0, schedule={"rounds": 0}) | {"evaluation": {}}).resolve().priced_scheme()
    assert scheme.at(1).question is not None
    with pytest.raises(InvalidInput, match="round 2 asks nothing that was agreed on"):
        scheme.at(2)


def test_masked_sums_are_the_plain_ones_and_workers_change_nothing(tmp_path: Path) -> None:
    found = []
    for name, privacy, workers in (("a", "plain", 0), ("b", "masked", 0), ("c", "plain", 2)):
        made = config(5.0, privacy={"aggregation": privacy}, runtime={"workers": workers}, schedule={"rounds": 2})
        run(made, tmp_path / name, secrets=ReplaySecrets(3))
        found.append(json.loads((tmp_path / name / "answers.json").read_text("utf-8")))
    assert found[0] == found[1] == found[2]


def test_persons_answer_one_by_one(tmp_path: Path) -> None:
    persons = {"unit": "person", "persons": CLIENTS * ROWS // 2, "clip_norm": 1.0, "clip": "fixed"}
    two = {"question": {"rows": 2, "prevalence": 0.3}}
    result = run(config(100.0, privacy=persons, evaluation=two), tmp_path / "run", secrets=ReplaySecrets(1))
    (age, evaluation) = json.loads((tmp_path / "run" / "answers.json").read_text("utf-8"))
    assert age["estimates"]["age"]["value"] == pytest.approx(TRUE_AGE, abs=0.5)
    assert any("person" in note for note in age["notes"])
    assert result["final_auroc"] == pytest.approx(result["final_auroc_server"], abs=0.02)
    assert evaluation["estimates"]["auroc"]["low"] <= result["final_auroc_server"]


def test_learning_ends_when_clients_find_nothing_better(tmp_path: Path) -> None:
    """Steps are so long that the first evaluation stays the best."""
    made = config(
        None, server={"rate": 300.0}, schedule={"rounds": 30, "patience": 2}, evaluation={"every": 1}, questions=[]
    )
    result = run(made, tmp_path / "run")
    assert result["stopped"] == "evaluation"
    assert result["rounds"] < 12
    with pytest.raises(ConfigError, match=r"schedule\.patience needs evaluations by clients"):
        config(None, schedule={"patience": 2})


def test_evaluations_that_say_next_to_nothing_end_no_learning() -> None:
    """An AUROC between 0 and 1 is neither better nor worse than another."""
    scheme = parse(table(None, evaluation={"every": 1})).resolve().priced_scheme()
    state = RunState(round=1, weights=np.zeros(FEATURES + 5, np.float32))
    seen = []
    for low, high in ((0.0, 1.0), (0.7, 0.8), (0.2, 0.95)):
        found = _noted(scheme, state, Answer(question="evaluation", estimates={"auroc": Estimate(0.75, low, high)}))
        seen.append(len(found.get("values", ())))
    assert seen == [0, 1, 0]


def test_calibration_still_follows_when_learning_ends_early(tmp_path: Path) -> None:
    made = config(
        None, server={"rate": 1e-7}, schedule={"rounds": 30, "patience": 1, "calibration": 2}, evaluation={"every": 1}
    )
    result = run(made, tmp_path / "run")
    lines = metrics(tmp_path / "run")
    skipped = [after["round"] - before["round"] for before, after in itertools.pairwise(lines)]
    assert max(skipped) > 1, "rounds that learn were left out"
    assert result["stopped"] in ("rounds", "evaluation")
    assert lines[-1]["round"] == made.total_rounds


def test_a_run_is_resumed_between_questions(tmp_path: Path) -> None:
    whole = config(5.0, evaluation={"every": 2})
    run(whole, tmp_path / "whole", secrets=ReplaySecrets(1))

    class Stop(Exception):
        pass

    def stop(line: Any) -> None:
        if line["round"] == 4:
            raise Stop

    with pytest.raises(Stop):
        run(whole, tmp_path / "parts", secrets=ReplaySecrets(1), observers=[stop])
    run(whole, tmp_path / "parts", secrets=ReplaySecrets(1), resume=True)
    one, other = (json.loads((tmp_path / name / "answers.json").read_text("utf-8")) for name in ("whole", "parts"))
    assert one == other


def test_a_finished_run_is_evaluated_within_what_is_left(tmp_path: Path) -> None:
    run(config(1.0, questions=[], evaluation={"where": "server", "question": {}}), tmp_path / "run")
    with pytest.raises(ConfigError, match="say what it and its evaluations may cost together"):
        evaluation_config(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"no evaluation fits into epsilon = 0\.5"):
        evaluation_config(tmp_path / "run", epsilon=0.5)
    changes = ["evaluation.question.rows=60", "evaluation.question.prevalence=0.3"]
    made, out = evaluation_config(tmp_path / "run", epsilon=40.0, changes=changes)
    result = evaluate_run(tmp_path / "run", made, out)
    assert 1.0 < result["epsilon_pld"] <= 40.0
    assert result["final_auroc"] == pytest.approx(result["final_auroc_server"], abs=0.05)
    again, second = evaluation_config(tmp_path / "run", epsilon=45.0, changes=changes)
    assert second != out
    assert evaluate_run(tmp_path / "run", again, second)["epsilon_pld"] > result["epsilon_pld"]


@dataclass(frozen=True, kw_only=True)
class TooLong:
    """A question whose vectors break the bound."""

    asks_of: ClassVar[Literal["table", "scores"]] = "table"
    name: str = "long"
    columns: tuple[str, ...] = ("age",)
    length: int = 2

    def vectors(self, rows: Columns, starts: Any) -> Any:
        return np.full((len(starts) - 1, 2), 50.0)

    def read(self, total: Total) -> Answer:
        return Answer(question=self.name, estimates={"sum": Estimate(float(total.value[0]), 0.0, 0.0)})


def test_a_vector_above_its_bound_is_cut(tmp_path: Path) -> None:
    QUESTIONS._parts["too-long"] = TooLong
    try:
        made = table(500.0, schedule={"rounds": 0}) | {"evaluation": {}, "questions": [{"kind": "too-long"}]}
        run(parse(made).resolve(), tmp_path / "run")
    finally:
        del QUESTIONS._parts["too-long"]
    (answer,) = json.loads((tmp_path / "run" / "answers.json").read_text("utf-8"))
    assert answer["estimates"]["sum"]["value"] == pytest.approx(CLIENTS / math.sqrt(2), abs=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"questions": [{"kind": "means", "name": "a"}]}, "did you mean 'mean'"),
        ({"questions": [{"name": "a"}]}, "has no kind"),
        ({"questions": [AGE, AGE]}, "give each a name of its own"),
        ({"questions": [AGE | {"limits": {"age": [0, math.inf]}}]}, "age"),
        ({"questions": [AGE | {"limit": 3}]}, "unknown key questions"),
        ({"questions": "age"}, "must be a list of tables"),
        ({"evaluation": {"where": "nowhere"}}, "evaluation.where"),
        ({"evaluation": {"where": "server", "every": 2}}, "for evaluation.where = 'clients'"),
        ({"schedule": {"rounds": 0}, "questions": [], "evaluation": {"where": "server", "question": {}}}, "is 0"),
    ],
)  # fmt: skip
def test_bad_questions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LowkeyError, match=message):
        config(**changes)


def test_rows_that_cannot_answer_are_counted_and_the_others_go_on(tmp_path: Path) -> None:
    def partly(client: int) -> Table:
        made = table_of(client)
        if client >= 4:
            return made
        columns: dict[str, Any] = [
            {"died": made.columns["died"]},  # no such column
            {"age": np.array(["old"] * ROWS, object), "died": made.columns["died"]},  # text in a number
            {"age": np.empty(0), "died": np.empty(0)},  # no rows: zeros
            {"age": np.full(ROWS, np.nan), "died": made.columns["died"]},  # all missing: zeros
        ][client]
        return Table(columns, np.arange(len(next(iter(columns.values())))))

    TASKS._parts["tiny"] = replace(TINY, tables=lambda study: Made(partly))
    run(config(500.0, schedule={"rounds": 1}), tmp_path / "run", secrets=ReplaySecrets(1))
    (line, *_) = metrics(tmp_path / "run")
    assert line["could_not_contribute"] == 2  # those without rows or numbers answer with zeros
    assert line["answer"]["estimates"]["age"]["value"] == pytest.approx(TRUE_AGE, abs=2.0)


def test_a_task_without_test_rows_of_clients_says_so(tmp_path: Path) -> None:
    TASKS._parts["tiny"] = replace(TINY, held_out=None)
    with pytest.raises(LowkeyError, match=r"Task\.held_out"):
        run(config(500.0), tmp_path / "run")


def test_a_client_answers_no_more_often_than_was_planned() -> None:
    """By its own ledger, in which attempts at other rounds do not count for questions."""
    made = config(2.0, privacy={"aggregation": "masked"})
    scheme = made.priced_scheme(FEATURES + 5)
    client = lowkey.Client(scheme=scheme, trainer=None, ledger=ClientLedger(None))  # type: ignore[arg-type]
    assert client.ledger is not None
    asking, learning = (scheme.at(number).terms(8, number) for number in (1, 2))
    assert "mean 'age'" in asking.question
    assert learning.question == ""
    own = scheme.at(1).privacy.max_contributions
    assert own == 3  # two questions and a spare attempt
    for number in range(3):
        assert client._limit_reached(client.ledger, asking, 100, own) is None
        client.ledger.join("app/1", 1, number, noise_multiplier=asking.noise_multiplier)
    assert "3 of 3" in str(client._limit_reached(client.ledger, asking, 100, own))
    assert client._limit_reached(client.ledger, learning, 100, 50) is None
    fresh = ClientLedger(None)
    for number in range(5):
        fresh.join("app/1", 2, number, noise_multiplier=learning.noise_multiplier)
    assert client._limit_reached(fresh, learning, 9, 9) is None
    assert "5 of 5 contributions besides answers" in str(client._limit_reached(fresh, learning, 8, 8))
    assert client._limit_reached(fresh, asking, 8, own) is None
    with pytest.raises(InvalidInput):
        replace(scheme.at(1), question=None).for_model(lowkey.protocols.ModelShape((1,)), rounds=0)


@pytest.mark.parametrize("asking", [0.02, 0.5], ids=["much noise in answers", "little"])
def test_a_client_at_its_limits_has_given_no_more_than_the_target(asking: float) -> None:
    made = config(2.0, schedule={"rounds": 6}, evaluation={"every": 1}, privacy={"asking": asking})
    assert made.privacy is not None
    events = lowkey.federation.events_at_limit(made.priced_scheme())
    assert sum(event.count for event in events) == made.privacy.max_contributions
    assert lowkey.privacy.server_view(events, made.privacy.delta) <= 2.0 + 1e-6


def test_the_truth_of_this_file() -> None:
    """The label can be learned: what the tests compare is not chance."""
    rows, died = (np.concatenate(part) for part in zip(*(rows_of(c, 1)[:2] for c in range(CLIENTS)), strict=True))
    assert auroc(rows[:, 0].astype(np.float64), died > 0.5) > 0.7
