"""``lowkey flower``: what a federation on real machines needs before ``flwr run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Deploy on Flower, on your own machines. docs/deployment.md shows every step to a running federation.",
    no_args_is_help=True,
)

Home = Annotated[Path, typer.Argument(help="The node's home: the directory of its keys, such as /etc/lowkey.")]


@app.command()
def new(directory: Annotated[Path, typer.Argument(help="Directory to create; the app gets its name.")]) -> None:
    """Write a small app to edit: a model, a loader of local data, and the settings that everybody agrees on."""
    from lowkey.deployment import new_app

    new_app(directory)
    package = directory.resolve().name.replace("-", "_")
    typer.echo(f"edit  {directory / package / 'task.py'}      model and local data")
    typer.echo(f"edit  {directory / package / 'lowkey.toml'}  settings that everybody agrees on")
    typer.echo(f"see   {directory / 'policy.toml'}  what nodes insist on, with these settings")


@app.command()
def identity(
    home: Home,
    *,
    client: Annotated[
        int, typer.Option(min=0, help="Number of this client, which all clients have agreed on: 0, 1, 2, ...")
    ],
    name: Annotated[str, typer.Option(help="Name of this client, for people to read.")] = "",
) -> None:
    """Make the keys of a node: one signs its messages in the protocol, one logs it in at the server.

    The third is a secret between the node's own two processes: without it, whoever can log in at the machine could
    fetch the node's tasks.
    """
    from lowkey.deployment import EXECUTOR_SECRET, NODE_KEY, new_executor_secret, new_identity, new_node_key

    new_identity(home, client, name)
    new_node_key(home / NODE_KEY)
    new_executor_secret(home / EXECUTOR_SECRET)
    typer.echo(
        f"secret  {home / 'identity.pem'}, {home / NODE_KEY}, {home / EXECUTOR_SECRET}   never leave this machine"
    )
    typer.echo(
        f"public  {home / 'identity.toml'}   give it to all other clients, then compare fingerprints of the list"
    )
    typer.echo(f"public  {home / 'node.pub'}        give it to the server's operator")


@app.command()
def enrol(
    identities: Annotated[list[Path], typer.Argument(help="The identity.toml of every client.")],
    *,
    out: Annotated[Path, typer.Option(help="File to write the list to.")] = Path("enrolled.toml"),
) -> None:
    """Make the list of all clients. Everybody should make their own list and compare its fingerprint."""
    from lowkey.deployment import fingerprint, read_enrolment, write_enrolment

    write_enrolment(out, [entry for path in identities for entry in read_enrolment(path)])
    clients = read_enrolment(out)
    for client in clients:
        typer.echo(f"{client.client:>6}  {client.name}")
    typer.echo(f"fingerprint  {fingerprint(clients)}")


@app.command("fingerprint")
def show_fingerprint(
    path: Annotated[Path, typer.Argument(help="A list of clients (enrolled.toml) or the directory of an app.")],
) -> None:
    """Print the fingerprint of a list of clients or of an app; compare it by telephone before you trust either."""
    from lowkey.deployment import app_hash, fingerprint, read_enrolment

    typer.echo(app_hash(path) if path.is_dir() else fingerprint(read_enrolment(path)))


@app.command("approve")
def approve_app(
    directory: Annotated[Path, typer.Argument(help="Directory of the app that you have reviewed.")],
    *,
    home: Annotated[Path, typer.Option(help="The node's home: the directory of its keys.")],
) -> None:
    """Let this node run an app. With the guard in the PATH of its executor, the node runs no other app.

    A node without a policy gets one: the app's own limits, for all apps and runs together. Review it. One that is there
    is not changed, and an app without privacy, which could not keep it, is refused. Approve the app again after every
    upgrade of Flower.
    """
    from lowkey.deployment import (
        APPROVED_FILE,
        POLICY_FILE,
        app_config,
        app_encoder,
        app_features,
        app_hash,
        approve,
        write_default_policy,
        write_guard,
    )
    from lowkey.errors import PolicyRefused

    digest, approved, policy = app_hash(directory), home / APPROVED_FILE, home / POLICY_FILE
    config = app_config(directory)
    if policy.exists() and not config.scheme().private:
        raise PolicyRefused(
            f"{policy} limits what this node gives, and this app has no privacy, so it cannot keep it; approve it for "
            "the home of another node, which has no policy"
        )
    encoder = app_encoder(directory, config)
    approve(approved, digest, directory.resolve().name)
    write_guard(home / "guard", approved)
    typer.echo(f"approved  {digest}")
    if encoder is not None:
        typer.echo(f"encoder   {encoder}   compare it with the other clients: lowkey encoder show")
    typer.echo(f"features  {app_features(config)}")
    for question in config.asked:
        typer.echo(f"asks      {question}")
    if policy.exists():
        typer.echo(f"policy    {policy}   is kept as it is")
    elif write_default_policy(policy, config) is not None:
        typer.echo(f"policy    {policy}   written with the app's own limits: review it")
    typer.echo(f"guard     {home / 'guard'}   put it first in the PATH of flower-superexec, before Flower's programs")


@app.command()
def certificates(
    directory: Annotated[Path, typer.Argument(help="Directory on the server to write the files to.")],
    *,
    host: Annotated[
        list[str], typer.Option(help="Name or address under which nodes reach the server; may be given several times.")
    ],
) -> None:
    """Make a certificate authority and the server's certificate, for consortia that have none."""
    from lowkey.deployment import new_certificates

    new_certificates(directory, host)
    typer.echo(f"secret  {directory / 'server.key'}   stays on the server")
    typer.echo(f"secret  {directory / 'ca.key'}       is needed only to make more certificates; keep it elsewhere")
    typer.echo(f"public  {directory / 'ca.crt'}   give it to every node")


@app.command("revoke")
def revoke_client(
    enrolled: Annotated[Path, typer.Argument(help="The list of clients, enrolled.toml.")],
    *,
    client: Annotated[int, typer.Option(min=0, help="Number of the client that takes part no more.")],
    out: Annotated[Path | None, typer.Option(help="File to write the new list to; the same file by default.")] = None,
) -> None:
    """Mark a client as revoked, in the list at the server and at every node; numbers of the others stay.

    A revoked client is a dropout of every round. What it has spent stays spent, in its ledger and in the server's.
    """
    from lowkey.deployment import fingerprint, read_enrolment, revoke, write_enrolment

    before = read_enrolment(enrolled)
    after = revoke(before, client)
    write_enrolment(out or enrolled, after)
    typer.echo(f"revoked  {client}  {next(entry.name for entry in after if entry.client == client)}")
    typer.echo(f"fingerprint before  {fingerprint(before)}")
    typer.echo(f"fingerprint now     {fingerprint(after)}   compare it with everybody, then restart the node")
