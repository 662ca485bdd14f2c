"""``lowkey flower``: what a federation on real machines needs before ``flwr run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Deploy on Flower, on machines of your own; docs/deployment.md leads from nothing to a running federation.",
    no_args_is_help=True,
)

Home = Annotated[Path, typer.Argument(help="Directory of the node's keys, such as /etc/lowkey.")]


@app.command()
def new(directory: Annotated[Path, typer.Argument(help="Directory to make; its name becomes the app's.")]) -> None:
    """Write a small app to edit: a model, a loader of local data, and the settings all agree on."""
    from lowkey.deployment import new_app

    new_app(directory)
    package = directory.resolve().name.replace("-", "_")
    typer.echo(f"edit  {directory / package / 'task.py'}      model and local data")
    typer.echo(f"edit  {directory / package / 'lowkey.toml'}  settings that everybody agrees on")


@app.command()
def identity(
    home: Home,
    *,
    client: Annotated[int, typer.Option(min=0, help="Number of this client, agreed on by all: 0, 1, 2, ...")],
    name: Annotated[str, typer.Option(help="Name of this client, for people.")] = "",
) -> None:
    """Make the keys of a node: one by which it signs in the protocol, one by which it logs in at the server."""
    from lowkey.deployment import new_identity, new_node_key

    new_identity(home, client, name)
    new_node_key(home / "node.key")
    typer.echo(f"secret  {home / 'identity.pem'}, {home / 'node.key'}   never leave this machine")
    typer.echo(f"public  {home / 'identity.toml'}   give it to all other clients; compare the fingerprint of the list")
    typer.echo(f"public  {home / 'node.pub'}        give it to the server's operator")


@app.command()
def enrol(
    identities: Annotated[list[Path], typer.Argument(help="The identity.toml of every client.")],
    *,
    out: Annotated[Path, typer.Option(help="List to write.")] = Path("enrolled.toml"),
) -> None:
    """Make the list of all clients; everybody should do so by themselves and compare fingerprints."""
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
    """What people compare by telephone before they trust a list of clients or an app."""
    from lowkey.deployment import app_hash, fingerprint, read_enrolment

    typer.echo(app_hash(path) if path.is_dir() else fingerprint(read_enrolment(path)))


@app.command()
def approve(
    directory: Annotated[Path, typer.Argument(help="The app, as reviewed.")],
    *,
    home: Annotated[Path, typer.Option(help="Directory of the node's keys.")],
) -> None:
    """Let this node run an app; with the guard in its PATH it runs no other. Again after an upgrade of Flower."""
    from lowkey.deployment import app_hash, write_guard
    from lowkey.deployment import approve as approve_app

    digest, approved = app_hash(directory), home / "approved.txt"
    approve_app(approved, digest, directory.resolve().name)
    write_guard(home / "guard", approved)
    typer.echo(f"approved  {digest}")
    typer.echo(f"guard     {home / 'guard'}   takes the place of Flower's programs in the PATH of flower-supernode")


@app.command()
def certificates(
    directory: Annotated[Path, typer.Argument(help="Directory to write them to, on the server.")],
    *,
    host: Annotated[list[str], typer.Option(help="Name or address of the server, as nodes see it; may be repeated.")],
) -> None:
    """Make a certificate authority and the server's certificate, for consortia that have none."""
    from lowkey.deployment import new_certificates

    new_certificates(directory, host)
    typer.echo(f"secret  {directory / 'server.key'}   stays on the server")
    typer.echo(f"secret  {directory / 'ca.key'}       only makes more certificates; keep it elsewhere")
    typer.echo(f"public  {directory / 'ca.crt'}   give it to every node")
