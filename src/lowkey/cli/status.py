"""``lowkey status``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lowkey.cli.output import JsonOption, echo_lines, emit
from lowkey.figures import human_bytes, human_epsilon


def status(
    run: Annotated[Path, typer.Argument(help="A run directory, also while the run is under way, or a node's home.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Show how far a run is: round, scores, ε, bytes, clients that answered, seconds of each stage.

    For a node's home, show how its last training went and how much of its limits is used; only the node knows that.
    """
    from lowkey.experiments import RunDirectory

    if (run / "identity.toml").exists():
        _of_node(run, as_json)
        return

    directory = RunDirectory.open(run)
    metrics = directory.metrics()
    last = metrics[-1] if metrics else {}
    found = directory.summary() | {
        "state": directory.state(),
        "rounds_planned": directory.config.schedule.rounds,
        "features": directory.features or None,
        "survivors": last.get("survivors"),
        "seconds": last.get("seconds"),
    }
    if as_json:
        emit(found)
        return
    lines = {"state": found["state"], "round": f"{found['rounds']} of {found['rounds_planned']}"}
    if found["features"]:
        lines["features"] = found["features"]
    for number, score in enumerate(directory.presentation().scores):
        if found[f"final_{score.name}"] is not None:
            best = f"{found[f'best_{score.name}']:.4f}"
            lines[score.label] = (
                f"{found[f'final_{score.name}']:.4f}, {f'{best} in the best round' if number else f'best {best}'}"
            )
    if found["epsilon_pld"] is not None:
        at_limit = found["epsilon_server_limit"]  # what clients enforce
        server = human_epsilon(found["epsilon_server"] if at_limit is None else at_limit)
        where = "" if at_limit is None else ", at the clients' limit"
        lines["ε"] = f"{human_epsilon(found['epsilon_pld'])}; {server} for the server{where}"
    if last:
        lines["upload"] = f"{human_bytes(last['bytes_up_per_client'])} per client and round"
        lines["clients"] = f"{last.get('survivors', '–')} in the last round"
        lines["seconds"] = ", ".join(f"{name} {value:.1f}" for name, value in last["seconds"].items())
    echo_lines(lines)


def _of_node(home: Path, as_json: bool) -> None:
    from lowkey.deployment import node_status

    found = node_status(home)
    if as_json:
        emit(found)
        return
    lines: dict[str, Any] = {}
    if "round" in found:
        went = "contributed" if found["contributed"] else f"sent noise only: {found['reason']}"
        lines |= {"round": found["round"], "time": found["time"], "training": went}
    if "participations" in found:
        lines["given"] = f"{found['participations']} of {found['max_participations']} participations"
        lines["ε"] = f"{human_epsilon(found['epsilon'])} of {found['max_epsilon']:g} towards the server"
    if "error" in found:
        lines["error"] = f"{found['error_time']}: {found['error']}"
    echo_lines(lines)
