"""``lowkey demo``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, QuietOption, emit
from lowkey.cli.run import simulate
from lowkey.figures import human_bytes, human_epsilon

_PRESETS = ("demo/private", "demo/fl-cs-dp", "demo/fl-std-dp")


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Where to write the runs and the report.")] = Path("lowkey-demo"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Watch Lowkey work in a minute or two: private learning as we recommend it and as the paper does, on a sample."""
    from lowkey.errors import RunError
    from lowkey.experiments import load_config
    from lowkey.report import write_report

    marker = out / ".lowkey-demo"
    if out.exists() and any(out.iterdir()):
        if not marker.exists():
            raise RunError(f"{out} exists and is not a demo of Lowkey; choose another --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    marker.touch()
    directories = [out / name.split("/")[1] for name in _PRESETS]
    for name, directory in zip(_PRESETS, directories, strict=True):
        typer.echo(name, err=True)
        simulate(load_config(name), directory, quiet=quiet)
    summaries, _ = write_report(
        directories, out, title="Private learning: a head on public features, and the paper's network"
    )
    if as_json:
        emit({"runs": summaries, "report": str(out / "report.html")})
        return
    typer.echo(f"{'':>14}  {'accuracy':>8}  {'ε (δ=1e-5)':>10}  {'for the server':>14}  {'upload in a round':>17}")
    for summary in summaries:
        spent, server = (human_epsilon(summary[name], 3) for name in ("epsilon_pld", "epsilon_server"))
        upload = human_bytes(summary["bytes_up_per_client"])
        typer.echo(
            f"{summary['preset']:>14}  {summary['final_accuracy']:8.3f}  {spent:>10}  {server:>14}  {upload:>17}"
        )
    typer.echo(f"\nreport: {out / 'report.html'}")
