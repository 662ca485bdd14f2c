"""``lowkey status``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, echo_lines, emit, human_bytes, human_epsilon


def status(
    run: Annotated[Path, typer.Argument(help="Run directory, also of a run that is under way.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Tell how far a run is: round, scores, ε, bytes, clients that answered, seconds of each stage."""
    from lowkey.experiments import RunDirectory
    from lowkey.experiments.scores import LABELS, headline

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
    for number, name in enumerate(headline(found, "final_")):
        if found[f"final_{name}"] is not None:
            best = f"{found[f'best_{name}']:.4f}"
            lines[LABELS[name]] = (
                f"{found[f'final_{name}']:.4f}, {f'{best} in the best round' if number else f'best {best}'}"
            )
    if found["epsilon_pld"] is not None:
        lines["ε"] = f"{human_epsilon(found['epsilon_pld'])}; {human_epsilon(found['epsilon_server'])} for the server"
    if last:
        lines["upload"] = f"{human_bytes(last['bytes_up_per_client'])} per client and round"
        lines["clients"] = f"{last.get('survivors', '–')} in the last round"
        lines["seconds"] = ", ".join(f"{name} {value:.1f}" for name, value in last["seconds"].items())
    echo_lines(lines)
