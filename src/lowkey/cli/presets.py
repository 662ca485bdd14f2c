"""``lowkey presets list | show``."""

from __future__ import annotations

from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, emit

app = typer.Typer(help="The settings that come with Lowkey: every row of the paper's two tables, and the demo.")


@app.command("list")
def list_presets(as_json: JsonOption = False) -> None:
    """List all presets, with the paper's value where there is one."""
    from lowkey.experiments import labels, presets, values
    from lowkey.tasks import TASKS

    if as_json:
        emit([{"name": name, "paper": table.get("paper")} for name, table in presets().items()])
        return
    width, elsewhere = max(map(len, presets())), {}
    for name, table in presets().items():
        paper, scores = table.get("paper", {}), TASKS[table["task"]].scores
        published = f"paper: {values(paper['scores'], scores, 2)} @ round {paper['round']}" if paper else ""
        spent = f", ε {paper['epsilon']:g}" if "epsilon" in paper else ""
        typer.echo(f"{name:<{width}}  {published}{spent}".rstrip())
        if "data" in paper:
            elsewhere[name.split("/")[0], paper["data"]] = labels(scores)
    for (group, data), shown in elsewhere.items():
        typer.echo(
            f"\n{group}/…: {shown}; the paper measured these scores on its private database, {data}, not on this data."
        )


@app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(help="Name of a preset, or path of a TOML file.")],
    as_json: JsonOption = False,
) -> None:
    """Print the whole configuration of a preset as TOML; save it, edit it, and pass it to 'lowkey run'."""
    from lowkey.experiments import find, parse

    config = parse(find(name))
    if as_json:
        emit(config.to_table())
    else:
        typer.echo(config.to_toml(), nl=False)
