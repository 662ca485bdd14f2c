"""``lowkey privacy epsilon | calibrate``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, emit, human_epsilon

app = typer.Typer(help="What a setting costs in privacy, and which noise reaches a target.")


class SamplingChoice(StrEnum):
    """How cohorts are drawn."""

    poisson = "poisson"
    fixed = "fixed"


Probability = Annotated[float, typer.Option(help="Chance of a client to contribute to a round, q.")]
Rounds = Annotated[int, typer.Option(help="Number of rounds, T.")]
Delta = Annotated[float, typer.Option(help="δ of the guarantee.")]
SamplingOption = Annotated[
    SamplingChoice, typer.Option(help="How cohorts are drawn; a fixed size is accounted for as such, not as Poisson.")
]
Clients = Annotated[int | None, typer.Option(help="Number of clients; needed with --sampling fixed.")]

_ABOUT = (
    "Unit: one client with all its data. δ = {delta:g}. Sampling: {sampling}; neighbours: {neighbours}.\n"
    "For people who see released models but not who took part; against the server nothing is claimed."
)
_NEIGHBOURS = {"poisson": "one client's contribution present or zero", "fixed": "one client replaced by another"}


@app.command()
def epsilon(
    *,
    sampling_probability: Probability,
    noise_multiplier: Annotated[float, typer.Option(help="Noise of the sum relative to the clip norm, z.")],
    rounds: Rounds,
    delta: Delta = 1e-5,
    sampling: SamplingOption = SamplingChoice.poisson,
    clients: Clients = None,
    as_json: JsonOption = False,
) -> None:
    """ε after some rounds, by three accountants."""
    from lowkey.privacy import Event
    from lowkey.privacy import epsilon as account

    event = Event(
        kind=sampling.value,
        noise_multiplier=noise_multiplier,
        sampling_probability=sampling_probability,
        population=clients,
        count=rounds,
    )
    spent = account([event], delta)
    if as_json:
        emit({"epsilon_paper": spent.paper, "epsilon_rdp": spent.rdp, "epsilon_pld": spent.pld})
        return
    typer.echo(f"ε = {spent.claimed:.4f}   (PLD, the figure to claim)")
    typer.echo(f"    {human_epsilon(spent.rdp)}   by RDP")
    if spent.paper is not None:
        typer.echo(f"    {human_epsilon(spent.paper)}   as the paper counts (classic moments accountant)")
    typer.echo(_ABOUT.format(delta=delta, sampling=sampling.value, neighbours=_NEIGHBOURS[sampling.value]))


@app.command()
def calibrate(
    *,
    epsilon: Annotated[float, typer.Option(help="Target ε.")],
    sampling_probability: Probability,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; gives the noise they need.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise; gives the rounds it affords.")] = None,
    delta: Delta = 1e-5,
    sampling: SamplingOption = SamplingChoice.poisson,
    clients: Clients = None,
    as_json: JsonOption = False,
) -> None:
    """The noise that --rounds need for a target ε, or the rounds that --noise-multiplier affords."""
    from lowkey.errors import InvalidInput
    from lowkey.privacy import Event, affordable_rounds, calibrate_noise

    if (rounds is None) == (noise_multiplier is None):
        raise InvalidInput("give either --rounds (to get the noise) or --noise-multiplier (to get the rounds)")
    if rounds is not None:
        noise_multiplier = calibrate_noise(
            target_epsilon=epsilon,
            delta=delta,
            sampling_probability=sampling_probability,
            rounds=rounds,
            kind=sampling.value,
            population=clients,
        )
    else:
        assert noise_multiplier is not None
        event = Event(
            kind=sampling.value,
            noise_multiplier=noise_multiplier,
            sampling_probability=sampling_probability,
            population=clients,
        )
        rounds = affordable_rounds(event, target_epsilon=epsilon, delta=delta)
    if as_json:
        emit({"noise_multiplier": noise_multiplier, "rounds": rounds, "epsilon": epsilon, "delta": delta})
        return
    typer.echo(f"noise multiplier {noise_multiplier:.4f}, {rounds} rounds: ε ≤ {epsilon:g} (PLD)")
    typer.echo(_ABOUT.format(delta=delta, sampling=sampling.value, neighbours=_NEIGHBOURS[sampling.value]))
