"""The guarantee in words: ε for the public and for the server, what they rest on, what they leave out."""

from __future__ import annotations

from lowkey.figures import round_up
from lowkey.privacy.accounting import Epsilon
from lowkey.privacy.events import Event
from lowkey.privacy.sampling import SAMPLINGS
from lowkey.privacy.shares import NoiseShares

NOT_COVERED = (
    "choices made by looking at clients' data outside the rounds (hyper-parameters, clip norm, best round)",
    "other runs with the same clients, unless they share a ledger",
    "several clients of one owner together",
    "that a client is enrolled at all",
    "dropouts that depend on data, and more of them or of colluders than assumed",
    "a server that sees single vectors, without secure aggregation",
)

NOT_COVERED_OF_CLIENTS = (
    "a client as a whole: what all its {unit}s have in common, and that it takes part",
    "one human being's {unit}s at several clients together",
    "the number of {unit}s, which is public",
)

_NEIGHBOURS = {
    "zero-out": "one {unit}'s contribution present or zero (zero-out)",
    "replace-one": "one {unit} replaced by another (replace-one)",
}


def guarantee_lines(
    event: Event,
    *,
    released: Epsilon,
    server: float,
    participations: int | None,
    delta: float,
    shares: NoiseShares | None = None,
) -> list[str]:
    """What may be told to clients, one sentence per line.

    Parameters
    ----------
    event : Event
        The attempts of the run.
    released : Epsilon
        ε for people who see the models.
    server : float
        ε for the server, at ``participations``; None means all attempts of the run.
    delta : float
        δ of both.
    shares : NoiseShares or None
        Least survivors and honest members that the noise rests on, where known.
    """
    others = [("RDP", released.rdp), ("as the paper counts", released.paper)]
    asked = "in all attempts so far" if participations is None else f"{participations} times, attempts that failed too"
    unit, uncovered = event.unit, [*NOT_COVERED]
    about, whole = "a client", "one client with all its data"
    if unit != "client":
        rows = "with all its rows" if unit == "person" else "each row by itself"
        about, whole = f"one {unit} at a client", f"one {unit} at one client, {rows}"
        uncovered = [line.format(unit=unit) for line in NOT_COVERED_OF_CLIENTS] + uncovered
    known = ", ".join(f"{round_up(value, 4):.4f} {name}" for name, value in others if value is not None)
    lines = [
        f"ε = {released.claimed:.4f} for people who see released models but not who took part"
        + (f" (PLD; {known})" if known else " (PLD)"),
        f"ε = {round_up(server, 4):.4f} for the server and members of rosters, about {about} asked for its data "
        f"{asked} (zero-out)",
        f"Unit: {whole}. δ = {delta:g}. Neighbours: {_NEIGHBOURS[event.adjacency].format(unit=unit)}.",
        f"Sampling: {event.mode} ({SAMPLINGS[event.mode].words}).",
    ]
    if shares is not None and event.roster is not None:
        lines.append(
            f"Noise: whole while {shares.min_survivors} of {event.roster} members stay, of whom κ = {shares.honest} "
            f"are honest and up to c_max = {shares.colluders} collude with the server."
        )
        if shares.kind == "random":
            lines.append(
                f"Masks: a random graph. Of the honest, {shares.strays} more may be cut off; with a chance of "
                f"{shares.failure:.1e} an attempt, which δ bears, more than that."
            )
    return [*lines, f"Not covered: {'; '.join(uncovered)}."]
