"""``lowkey privacy epsilon | calibrate | clip-norm``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lowkey.cli.output import JsonOption, SetOption, emit

if TYPE_CHECKING:
    from lowkey.privacy import Event, Sampling

app = typer.Typer(help="Find out what settings cost in privacy, and how much noise a target needs.")


Clients = Annotated[int, typer.Option(help="Number of enrolled clients, N.")]
Cohort = Annotated[int, typer.Option(help="Expected number of clients whose data enters a round, q·N.")]
Delta = Annotated[float, typer.Option(help="δ of the guarantee.")]
SamplingOption = Annotated[
    str | None,
    typer.Option(
        help="How cohorts are drawn: all, poisson_padded, secret_poisson or fixed. By default all when the cohort is "
        "everybody, otherwise poisson_padded."
    ),
]
Roster = Annotated[
    int | None, typer.Option(help="With secret_poisson: how many clients are asked in a round; everybody by default.")
]
Participations = Annotated[
    int | None,
    typer.Option(
        help="How often one client is asked, for the server's ε; by default the limit that 99.9 % of clients stay "
        "within."
    ),
]
SpareAttempts = Annotated[
    int | None,
    typer.Option(
        help="Failed attempts to leave room for, since they are paid for; by default a twentieth of the rounds, at "
        "least one."
    ),
]
Dropouts = Annotated[float, typer.Option(help="Fraction of a roster that may drop out.")]
Colluders = Annotated[float, typer.Option(help="Fraction of a roster that may collude with the server.")]
Persons = Annotated[
    int | None,
    typer.Option(help="Protect each person at the clients, not clients as a whole: the public number of persons."),
]
Row = Annotated[
    str | None, typer.Option(help="With --persons, where data has no person ids: what one row is, such as admission.")
]
LargeDelta = Annotated[bool, typer.Option("--allow-large-delta", help="Accept a δ of 1/N or more.")]


@app.command("epsilon")
def show_epsilon(
    *,
    clients: Clients,
    cohort: Cohort,
    noise_multiplier: Annotated[float, typer.Option(help="Noise of the sum relative to the clip norm, z.")],
    rounds: Annotated[int, typer.Option(help="Number of rounds, T; failed attempts count as rounds.")],
    delta: Delta = 1e-5,
    sampling: SamplingOption = None,
    roster: Roster = None,
    participations: Participations = None,
    dropouts: Dropouts = 0.1,
    colluders: Colluders = 0.1,
    persons: Persons = None,
    row: Row = None,
    allow_large_delta: LargeDelta = False,
    as_json: JsonOption = False,
) -> None:
    """Show ε after a number of rounds: for people who see the models, and for the server."""
    unit = _unit(persons, row)
    sampler = _sampling(sampling, clients, cohort, roster, delta, allow_large_delta, unit, persons)
    event = replace(sampler.event(noise_multiplier), count=rounds, unit=unit)
    _show(sampler, event, delta, participations, dropouts, colluders, as_json, {})


@app.command()
def calibrate(
    *,
    epsilon: Annotated[float, typer.Option(help="Target ε, for people who see released models.")],
    clients: Clients,
    cohort: Cohort,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; the command finds the noise they need.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier; the command finds the rounds it allows.")
    ] = None,
    spare_attempts: SpareAttempts = None,
    delta: Delta = 1e-5,
    sampling: SamplingOption = None,
    roster: Roster = None,
    participations: Participations = None,
    dropouts: Dropouts = 0.1,
    colluders: Colluders = 0.1,
    persons: Persons = None,
    row: Row = None,
    allow_large_delta: LargeDelta = False,
    as_json: JsonOption = False,
) -> None:
    """Find the noise that --rounds need for a target ε, or the rounds that --noise-multiplier allows."""
    from lowkey import privacy
    from lowkey.errors import InvalidInput
    from lowkey.privacy import affordable_rounds, calibrate_noise, rounds_within

    if (rounds is None) == (noise_multiplier is None):
        raise InvalidInput("give either --rounds (to get the noise) or --noise-multiplier (to get the rounds)")
    unit = _unit(persons, row)
    sampler = _sampling(sampling, clients, cohort, roster, delta, allow_large_delta, unit, persons)
    chosen = _spare(spare_attempts)
    if noise_multiplier is not None:
        attempts = affordable_rounds(sampler.event(noise_multiplier), epsilon=epsilon, delta=delta)
        rounds = rounds_within(attempts, chosen)
        if rounds == 0:
            raise InvalidInput(
                f"not one round, with its spare attempts, fits into epsilon = {epsilon:g}; raise epsilon or the noise"
            )
    assert rounds is not None
    spare, price = privacy.spare_attempts(rounds, chosen), ""
    if noise_multiplier is None:
        noise_multiplier, without = (
            calibrate_noise(sampler, epsilon=epsilon, delta=delta, rounds=n) for n in (rounds + spare, rounds)
        )
        price = f" ({without:.4f} without spare attempts)" if spare else ""
    found = {
        "noise_multiplier": noise_multiplier, "rounds": rounds, "spare_attempts": spare, "target_epsilon": epsilon,
    }  # fmt: skip
    if not as_json:
        typer.echo(
            f"noise multiplier {noise_multiplier:.4f}{price}: ε ≤ {epsilon:g} over rounds and spare attempts, "
            f"{rounds} and {spare}"
        )
    event = replace(sampler.event(noise_multiplier), count=rounds + spare, unit=unit)
    _show(sampler, event, delta, participations, dropouts, colluders, as_json, found)


def _spare(chosen: int | None) -> int | Literal["auto"]:
    from lowkey import checks

    if chosen is None:
        return "auto"
    checks.at_least("--spare-attempts", chosen, 0)
    return chosen


def _unit(persons: int | None, row: str | None) -> str:
    """Whom ε is about, in one word."""
    from lowkey.privacy import ClientPrivacy

    unit: Literal["client", "person"] = "client" if persons is None else "person"
    return ClientPrivacy(clip="normalise", unit=unit, persons=persons, row=row).protected


def _sampling(
    choice: str | None,
    clients: int,
    cohort: int,
    roster: int | None,
    delta: float,
    large: bool,
    unit: str,
    persons: int | None,
) -> Sampling:
    from lowkey.errors import InvalidInput
    from lowkey.privacy import make_sampling, require_small_delta

    sampler = make_sampling(choice, population=clients, cohort=cohort, roster=roster)
    if persons is not None and sampler.mode != "all":
        raise InvalidInput("with --persons every client takes part in every round; set --cohort to --clients")
    require_small_delta(delta, persons or clients, unit=unit, allow_large=large)
    return sampler


def _show(
    sampler: Sampling,
    event: Event,
    delta: float,
    participations: int | None,
    dropouts: float,
    colluders: float,
    as_json: bool,
    found: dict[str, Any],
) -> None:
    from lowkey.privacy import (
        ClientPrivacy,
        guarantee_lines,
        likely_participations,
        released_epsilon,
        server_epsilon,
    )

    shares = ClientPrivacy(clip_norm=1.0, dropouts=dropouts, colluders=colluders).shares_of(sampler.roster_size)
    likely = max(1, likely_participations(event.count, sampler.probability))
    asked = likely if participations is None else participations
    released = released_epsilon([event], delta)
    server = server_epsilon(event.noise_multiplier, asked, delta, coin=sampler.coin)
    if as_json:
        emit(
            found
            | {
                "epsilon_paper": released.paper,
                "epsilon_rdp": released.rdp,
                "epsilon_pld": released.pld,
                "epsilon_server": server,
                "participations": asked,
                "delta": delta,
                "sampling": sampler.mode,
                "adjacency": event.adjacency,
                "unit": event.unit,
                "roster": sampler.roster_size,
                "min_survivors": shares.min_survivors,
                "honest": shares.honest,
            }
        )
        return
    lines = guarantee_lines(event, released=released, server=server, participations=asked, delta=delta, shares=shares)
    typer.echo("\n".join(lines))


@app.command("clip-norm")
def clip_norm(
    preset: Annotated[str, typer.Argument(help="A preset ('lowkey presets list') or a TOML file, on public data.")],
    *,
    assignments: SetOption = None,
    clients: Annotated[int, typer.Option(help="How many clients take one step of training.")] = 100,
    quantile: Annotated[
        float, typer.Option(help="Which quantile of their norms to take; the paper takes the median.")
    ] = 0.5,
    as_json: JsonOption = False,
) -> None:
    """Find a clip norm on public data: the median norm of the clients' first compressed updates.

    The result is not private, so use data that may be seen: public, synthetic, or your own. If you have none, start
    from a guess and set privacy.clip = "adaptive".
    """
    import numpy as np

    from lowkey import checks
    from lowkey.experiments import build, first_norms, load_config

    checks.fraction("quantile", quantile, include_one=False)
    norms = first_norms(build(load_config(preset, assignments or [])), clients)
    low, found, high = (float(q) for q in np.quantile(norms, [0.25, quantile, 0.75]))
    if as_json:
        emit({"clip_norm": found, "quantile": quantile, "clients": norms.size, "quartiles": [low, high]})
        return
    about = f"quantile {quantile:g} of {norms.size} clients; quartiles {low:.3g} and {high:.3g}"
    typer.echo(f"privacy.clip_norm = {found:.3g}   ({about})")
    typer.echo("This number is not private: use it only if the data may be seen.")
