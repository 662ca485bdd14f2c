"""``lowkey stats`` and ``lowkey evaluate``: questions that clients answer in one masked, noised sum each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lowkey.cli.output import JsonOption, QuietOption, SetOption, emit
from lowkey.figures import human, human_epsilon, titled, with_ranges


def stats(
    preset: Annotated[str, typer.Argument(help="A TOML file with [[questions]], or a preset with --set questions=...")],
    *,
    assignments: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/NAME-stats by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue in --out where it stopped.")] = False,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Ask real Flower nodes on this machine, as many; otherwise simulate.")
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask all clients the questions of a file, and learn nothing else: counts, means, histograms, frequent codes.

    All questions together have the whole privacy.epsilon, and are paid for in the ledger before anything is sent. The
    answers, with their 95 % intervals, are shown and kept as answers.json in the run directory.
    """
    from lowkey.cli.run import deploy, simulate
    from lowkey.experiments import RunDirectory, load_config

    changes = [
        *(assignments or []),
        "schedule.rounds=0",
        "schedule.calibration=0",
        "schedule.patience=0",
        "evaluation={}",
    ]
    config = load_config(preset, changes, nodes=nodes)
    directory = out or Path("runs") / f"{config.name.replace('/', '_')}-stats"
    start = simulate if nodes is None else deploy
    result = start(config, directory, resume=resume, quiet=quiet)
    _show(RunDirectory.open(directory).answers(), result, directory, as_json=as_json)


def evaluate(
    run: Annotated[Path, typer.Argument(help="The directory of a run whose model is to be evaluated.")],
    *,
    epsilon: Annotated[
        float | None,
        typer.Option(help="What the run and all its evaluations may cost together; needed for a private run."),
    ] = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate the model of a simulated run on every client's own test rows, without a test set at the server.

    Clients send histograms of scores, masked and noised like updates. What that costs goes into the ledger of the run,
    and is refused beforehand if the sum of all is above --epsilon. Settings of the question are set with --set
    evaluation.question.prevalence=0.02 and the like. Answers are kept in the run directory, evaluation-1/answers.json.
    """
    from lowkey.cli.run import observed
    from lowkey.experiments import RunDirectory
    from lowkey.simulation import evaluate_run, evaluation_config

    config, directory = evaluation_config(run, epsilon=epsilon, changes=assignments or [])
    with observed(config, directory, quiet=quiet, tracker=None) as (progress, observers):
        result = evaluate_run(run, config, directory, observers=observers, started=lambda _: progress.begin(0))
    _show(RunDirectory.open(directory).answers(), result, directory, as_json=as_json)


def _show(answers: list[dict[str, Any]], result: Mapping[str, Any], directory: Path, *, as_json: bool) -> None:
    if as_json:
        emit({**result, "answers": answers})
        return
    from rich.console import Console

    console = Console()
    for answer in answers:
        console.print(f"\n[bold]{answer['question']}[/bold]", highlight=False)
        if answer["estimates"]:
            rows = [
                (titled(name), *(human(one[key]) for key in ("value", "low", "high")))
                for name, one in answer["estimates"].items()
            ]
            console.print(_table(("", "estimate", "from", "to (95 %)"), rows))
        for name, columns in answer["tables"].items():
            shown = with_ranges(columns)
            console.print(_table(tuple(shown), zip(*shown.values(), strict=True), title=name))
        for note in answer["notes"]:
            console.print(note, highlight=False, style="dim")
    spent = result.get("epsilon_pld")
    paid = "nothing: the run promises no privacy" if spent is None else f"ε {human_epsilon(spent)} in all so far"
    console.print(f"\ncost     {paid}\nanswers  {directory / 'answers.json'}", highlight=False, soft_wrap=True)


def _table(header: Iterable[str], rows: Iterable[tuple[str, ...]], title: str | None = None) -> Any:
    from rich.table import Table

    table = Table(*header, title=title, title_justify="left", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    return table
