"""``lowkey plan``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowkey.cli.output import JsonOption, SetOption, emit
from lowkey.errors import ConfigError
from lowkey.figures import human_epsilon, human_megabits

if TYPE_CHECKING:
    from lowkey.experiments import Candidate, Plan


def plan(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A preset or TOML file with settings of a private head, such as fashion-mnist/private: its task is "
            "what is learned. Without it, give --clients, --features and --epsilon."
        ),
    ] = None,
    *,
    clients: Annotated[int | None, typer.Option(help="Number of enrolled clients, N.")] = None,
    examples: Annotated[
        int | None,
        typer.Option(help="Examples that a client has, about: are they enough where clients are too few?"),
    ] = None,
    features: Annotated[
        int | None, typer.Option(help="Public features of an example, d: what the widest head sees.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes; 2, the default, is a risk by logistic regression.")
    ] = None,
    parameters: Annotated[
        int | None,
        typer.Option(help="Parameters of the network that is shown beside; the task's own or the paper's by default."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target ε, for people who see released models.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of the guarantee; 1e-5 by default.")] = None,
    dropouts: Annotated[
        float | None, typer.Option(help="Fraction of a roster that may drop out; a tenth by default.")
    ] = None,
    colluders: Annotated[
        float | None, typer.Option(help="Fraction of a roster that may collude with the server; a tenth by default.")
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(help="Who masks with whom: worst-case, random, or auto for whichever takes far fewer neighbours."),
    ] = None,
    cohort: Annotated[
        int | None, typer.Option(help="Contributors of a round where clients are sampled; 100 or half by default.")
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(help="Mbit of vectors that a client may send in the whole run; the protocol comes on top."),
    ] = None,
    auroc_error: Annotated[
        float, typer.Option(help="Mean error of the AUROC that an evaluation by clients should have.")
    ] = 0.02,
    assignments: SetOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the recommended settings to this TOML file, for 'lowkey run'.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find out what can be learned under a promise: candidates side by side, with rounds, noise, bytes and ε.

    Figures are those of settings that would run. Upload and download are of one client in the whole run: its vectors,
    and apart from them what secure aggregation sends and receives on its own account.
    """
    from lowkey.experiments import Wishes
    from lowkey.experiments import plan as make_plan

    if assignments and source is None:
        raise ConfigError("--set changes settings of a preset or TOML file; name one")
    if out is not None:
        if source is None:
            raise ConfigError("--out writes settings of a task; name a preset or TOML file that has one")
        if out.exists():
            raise ConfigError(f"{out} exists; choose another name, or remove it")
    wishes = Wishes(
        clients=clients,
        examples=examples,
        features=features,
        classes=classes,
        parameters=parameters,
        epsilon=epsilon,
        delta=delta,
        dropouts=dropouts,
        colluders=colluders,
        graph=graph,
        cohort=cohort,
        limit=limit,
        auroc_error=auroc_error,
    )
    made = make_plan(wishes, source, assignments or [])
    if out is not None:
        _write(made, out)
    if as_json:
        emit(made.to_json() | {"out": None if out is None else str(out)})
        return
    _print(made, limit)
    if out is not None:
        typer.echo(f"{out} has these settings: lowkey run {out}")


def _write(made: Plan, out: Path) -> None:
    best = made.recommended
    if best is None:
        raise ConfigError(f"{out} was not written: {made.verdict[-1]}")
    try:
        out.write_text(best.to_toml(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); check the path") from error


def _print(made: Plan, limit: float | None) -> None:
    first = made.candidates[0].resolved
    assert first.privacy is not None
    promise, clients = first.privacy, first.federation.clients
    each = "" if made.examples is None else f" with {made.examples} examples each, {clients * made.examples} in all"
    most = "" if limit is None else f"; at most {limit:g} Mbit of vectors a client"
    typer.echo(
        f"{clients} clients{each}; ε = {promise.epsilon:g}, δ = {promise.delta:g}; {promise.dropouts:.0%} may drop "
        f"out, {promise.colluders:.0%} may collude{most}\n"
    )
    _table(made.candidates)
    typer.echo(
        "\nMbit: of one client in the whole run, on average. ε of models: spare attempts included. ε of the server: "
        "about a client\nat its limit of contributions. Harm: what the noise adds to the loss at most, in nats. "
        "Signal: of one number over its noise."
    )
    for line in (*made.refused, *made.verdict, *made.askable.sentences):
        typer.echo(line)


def _table(candidates: Sequence[Candidate]) -> None:
    head = ("", "model", "who", "rounds", "noise", "bits", "vectors up", "protocol up", "protocol down", "ε models",
            "ε server", "harm", "signal", "")  # fmt: skip
    rows = [head, *(_row(number, one) for number, one in enumerate(candidates, 1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        cells = (
            f"{cell:<{width}}" if column in (1, 2, len(head) - 1) else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        typer.echo("  ".join(cells).rstrip())


def _row(number: int, one: Candidate) -> tuple[str, ...]:
    resolved, traffic = one.resolved, one.traffic
    assert resolved.privacy is not None
    return (
        str(number),
        one.name,
        one.who,
        str(resolved.schedule.last_round),
        f"{resolved.privacy.noise_multiplier:.2f}",
        str(resolved.privacy.bits),
        human_megabits(traffic.vectors_up),
        human_megabits(traffic.protocol_up),
        human_megabits(traffic.protocol_down),
        human_epsilon(one.released, 3),
        human_epsilon(one.server, 2),
        "–" if one.harm is None else f"{one.harm:.3f}",
        f"{one.signal:.3f}",
        "feasible" if one.feasible else "not feasible: " + "; ".join(one.reasons),
    )
