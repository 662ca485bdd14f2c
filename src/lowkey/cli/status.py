"""``lowkey status``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, emit, human_bytes, human_epsilon


def status(
    run: Annotated[Path, typer.Argument(help="Run directory, also of a run that is under way.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Tell how far a run is: round, accuracy, ε, bytes, clients that answered, seconds of each stage."""
    from lowkey.experiments import RunDirectory

    directory = RunDirectory.open(run)
    metrics = directory.metrics()
    last = metrics[-1] if metrics else {}
    found = directory.summary() | {
        "state": directory.state(),
        "rounds_planned": directory.config.federation.rounds,
        "survivors": last.get("survivors"),
        "seconds": last.get("seconds"),
    }
    if as_json:
        emit(found)
        return
    lines = {"state": found["state"], "round": f"{found['rounds']} of {found['rounds_planned']}"}
    if found["final_accuracy"] is not None:
        lines["accuracy"] = f"{found['final_accuracy']:.4f}, best {found['best_accuracy']:.4f}"
    if found["epsilon_pld"] is not None:
        lines["ε"] = f"{human_epsilon(found['epsilon_pld'])}; {human_epsilon(found['epsilon_server'])} for the server"
    if last:
        lines["upload"] = f"{human_bytes(last['bytes_up_per_client'])} per client and round"
        lines["clients"] = f"{last.get('survivors', '–')} in the last round"
        lines["seconds"] = ", ".join(f"{name} {value:.1f}" for name, value in last["seconds"].items())
    for name, value in lines.items():
        typer.echo(f"{name:>9}  {value}")
