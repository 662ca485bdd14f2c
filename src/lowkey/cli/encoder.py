"""``lowkey encoder show | apply | questions | fit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowkey.cli.output import JsonOption, echo_lines, emit
from lowkey.errors import ConfigError
from lowkey.figures import human_epsilon

if TYPE_CHECKING:
    from lowkey.tabular import Column, Cost

app = typer.Typer(help="Turn tables of your own into features, by a file that all clients agree on: docs/encoder.md.")

Encoder = Annotated[Path, typer.Argument(help="The file of an encoder.")]
Schema = Annotated[Path, typer.Argument(help="TOML file that says what is public about each column.")]


@app.command("show")
def show(file: Encoder, as_json: JsonOption = False) -> None:
    """Show what an encoder makes of each column, what it cost, and the digest that all clients should compare."""
    from lowkey.tabular import load_encoder

    encoder = load_encoder(file)
    if as_json:
        emit({**encoder.to_json(), "sha256": encoder.digest, "features": encoder.width})
        return
    echo_lines({"digest": encoder.digest, "features": encoder.width, "cost": _cost(encoder.cost)})
    typer.echo()
    echo_lines({column.name: _rule(column) for column in encoder.columns})
    for note in encoder.notes:
        typer.echo(f"\n{note}")


@app.command("apply")
def apply_encoder(
    file: Encoder,
    table: Annotated[Path, typer.Argument(help="The table: a .csv or .parquet file.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Write the rows here, as .npz; without it they are only checked.")
    ] = (None),
    label: Annotated[str | None, typer.Option(help="Column with the outcome, to be written too.")] = None,
    person: Annotated[str | None, typer.Option(help="Column that says whose each row is, to be written too.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether a table fits an encoder, and write its rows of features.

    What is printed counts fields of your own table: it is for your own eyes.
    """
    from lowkey.tabular import apply, load_encoder

    found = apply(load_encoder(file), table, label=label, person=person)
    if out is not None:
        found.save(out)
    rows, features = found.rows.shape
    events = None if found.labels is None else int(found.labels.sum())
    if as_json:
        emit({"rows": rows, "features": features, "events": events, "columns": found.treated})
        return
    lines: dict[str, Any] = {"rows": f"{rows:,}", "features": f"{features:,}"}
    if events is not None:
        lines["events"] = f"{events:,}"
    if out is not None:
        lines["written"] = out
    echo_lines(lines)
    typer.echo()
    echo_lines(
        {
            name: ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "all fields fit"
            for name, counts in found.treated.items()
        }
    )


@app.command("questions")
def show_questions(
    schema: Schema,
    *,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Run directory of 'lowkey stats' with the first answers: print what to ask next."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what must be asked before an encoder can be fitted, as tables [[questions]] for 'lowkey stats'.

    Where texts without a public list are asked for, ask twice: first for candidates, then, with --from, how many hold
    each of them, so that none appears that only one has.
    """
    import tomli_w

    from lowkey.tabular import confirmations, questions, read_answers, read_schema

    plan = read_schema(schema)
    asked = questions(plan) if source is None else confirmations(plan, read_answers(source / "answers.json"))
    if as_json:
        emit(asked)
    elif asked:
        typer.echo("\n".join(f"[[questions]]\n{tomli_w.dumps(question)}" for question in asked), nl=False)
    else:
        typer.echo("# nothing to ask: everything is public" if source is None else "# nothing more to ask")


@app.command("fit")
def fit_encoder(
    schema: Schema,
    *,
    out: Annotated[Path, typer.Option(help="File to write the encoder to.")] = Path("encoder.json"),
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="Run directory of 'lowkey stats': answers, and what they cost. Repeat it for runs on one ledger.",
        ),
    ] = None,
    answers: Annotated[Path | None, typer.Option(help="JSON file of answers, where there is no run directory.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="What the answers cost, ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="What the answers cost, δ.")] = None,
    unit: Annotated[str | None, typer.Option(help="Whom that protects: client or person.")] = None,
    run: Annotated[str | None, typer.Option(help="The run that asked.")] = None,
    ledger: Annotated[str | None, typer.Option(help="The ledger that has its entries.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an encoder from what is public and, where the schema asks, from private answers."""
    from lowkey.tabular import Cost, fit, read_answers, read_schema

    cost = Cost(epsilon=epsilon, delta=delta, unit=unit, run=run, ledger=ledger)
    files = [] if answers is None else [answers]
    if sources:
        from lowkey.experiments import RunDirectory

        if answers is not None or cost != Cost(epsilon=None, delta=None):
            raise ConfigError("--from takes answers and costs from the run directory; leave out what says them again")
        last, *before = (RunDirectory.open(source) for source in reversed(sources))
        cost, files = Cost(**last.price(*before)), [source / "answers.json" for source in sources]
    told = [answer for file in files for answer in read_answers(file)]
    encoder = fit(read_schema(schema), told, cost)
    encoder.save(out)
    if as_json:
        emit({"path": str(out), "sha256": encoder.digest, "features": encoder.width, "notes": list(encoder.notes)})
        return
    lines = {"encoder": out, "digest": encoder.digest, "features": encoder.width, "cost": _cost(encoder.cost)}
    echo_lines(lines)
    for note in encoder.notes:
        typer.echo(f"\n{note}")


def _cost(cost: Cost) -> str:
    if cost.epsilon is None:
        return "not known: nobody told an ε, or no privacy was promised"
    if cost.epsilon == 0:
        return "nothing: everything in it is public"
    about = [f"δ = {cost.delta:g}" if cost.delta is not None else "", f"per {cost.unit}" if cost.unit else ""]
    source = [f"run {cost.run}" if cost.run else "", f"ledger {cost.ledger}" if cost.ledger else ""]
    return ", ".join(part for part in (f"ε = {human_epsilon(cost.epsilon)}", *about, *source) if part)


def _rule(column: Column) -> str:
    from lowkey.tabular import Limits, Listed

    rule, missing = column.rule, ", and one for missing" if column.rule.missing else ""
    if isinstance(rule, Limits):
        fill = (rule.low + rule.high) / 2 if rule.fill is None else rule.fill
        return f"number from {rule.low:g} to {rule.high:g}, {fill:g} where it is missing{missing}"
    if isinstance(rule, Listed):
        other = ", one for others" if rule.other else ""
        few = ", ".join(rule.values[:5]) + (", …" if len(rule.values) > 5 else "")
        return f"{column.kind}: {len(rule.values)} listed ({few}){other}{missing}"
    hashes = ", ".join(
        str(count) if letters is None else f"{count} by the first {letters} letters"
        for letters, count in rule.columns.items()
    )
    return f"{column.kind}: hashed to {hashes} columns{missing}"
