"""``lowkey demo``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, QuietOption, emit
from lowkey.cli.run import simulate
from lowkey.figures import human_bytes, human_epsilon

_PRESETS = ("demo/fl-std-dp", "demo/fl-cs-dp")


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Where to write the runs and the report.")] = Path("lowkey-demo"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Watch Lowkey work in a minute or two: private learning with and without compression, on the bundled sample."""
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
    summaries, _ = write_report(directories, out, title="Private learning with and without compression")
    if as_json:
        emit({"runs": summaries, "report": str(out / "report.html")})
        return
    typer.echo(f"{'':>14}  {'accuracy':>8}  {'ε (δ=1e-5)':>10}  {'upload per client and round':>27}")
    for summary in summaries:
        spent, upload = human_epsilon(summary["epsilon_pld"], 3), human_bytes(summary["bytes_up_per_client"])
        typer.echo(f"{summary['preset']:>14}  {summary['final_accuracy']:8.3f}  {spent:>10}  {upload:>27}")
    typer.echo(f"\nreport: {out / 'report.html'}")
