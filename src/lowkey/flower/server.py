"""The server's side of a Flower app: the same rounds as in a simulation, asked over Flower's grid."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from lowkey.deployment import read_enrolment, verify_keys_of
from lowkey.errors import ConfigError, LowkeyError
from lowkey.experiments import FAILURE_FILE, Config, Connection, RunDirectory, run_in_directory
from lowkey.federation import RunState
from lowkey.figures import human_epsilon
from lowkey.flower.grid import GridAsk
from lowkey.flower.node import read_app_config, secrets_from_environment, settings_digest
from lowkey.flower.nodes import Nodes
from lowkey.protocols import Metrics
from lowkey.tasks import Score
from lowkey.timing import StageClock

_log = logging.getLogger(__name__)


def server_app(config: Path) -> ServerApp:
    """The app of the server.

    Settings of a run (``flwr run --run-config``) are ``out``, the run directory, which is resumed if it exists, and,
    for private schemes, ``enrolled``, the list of clients.

    Parameters
    ----------
    config : Path
        TOML file that comes with the app; its ``task`` names what is learned.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _log_to_stderr()
        out = Path(str(context.run_config.get("out", "")))
        if not out.is_absolute():
            raise ConfigError(f"run-config out is '{out}'; it must be an absolute path of a run directory")
        (out / FAILURE_FILE).unlink(missing_ok=True)
        try:
            serve(grid, context, read_app_config(config), out)
        except Exception as error:  # a person who stops a run knows why
            with contextlib.suppress(LowkeyError):
                RunDirectory.open(out).write_failure(str(error) or type(error).__name__)
            raise

    return app


def serve(grid: Grid, context: Context, config: Config, out: Path) -> None:
    """Run all rounds, or continue a run."""
    from lowkey.experiments import prospects, server_parts

    secrets, parts, clients = secrets_from_environment(), server_parts(config), config.federation.clients
    scheme, size = parts.scheme, parts.initial_weights.size
    verify_keys = None
    if scheme.private:
        enrolled = read_enrolment(Path(str(context.run_config.get("enrolled", ""))))
        if len(enrolled) != clients:
            raise ConfigError(
                f"{len(enrolled)} clients are enrolled, but federation.clients is {clients}; they must be equal"
            )
        verify_keys = verify_keys_of(enrolled)
        needed = max(phase.privacy.min_survivors for phase in scheme.phases.values())
        if len(verify_keys) < needed:
            raise ConfigError(
                f"{clients - len(verify_keys)} of {clients} clients are revoked, and a round needs "
                f"{needed}: agree on a new app for those that are left, or on more "
                "privacy.dropouts"
            )

    @contextmanager
    def over_the_grid(run: RunDirectory, clock: StageClock) -> Iterator[Connection]:
        if scheme.private and (app := run.ledger().run.rpartition("/")[0]) != config.name:
            raise ConfigError(
                f"{run.path} was started by the app '{app}', and this one is called '{config.name}'; clients take part "
                "in runs of the app that they approved: give it its old name, or start a new run"
            )
        nodes = Nodes(
            grid,
            run=context.run_id,
            population=clients,
            verify_keys=verify_keys,
            terms=settings_digest(scheme, size),
            features=scheme.features,
            replays=not secrets.claims_privacy,
            seconds=config.deployment.agree_seconds,
        )
        ask = GridAsk(
            grid,
            nodes,
            scheme=scheme,
            waiting=config.deployment,
            clock=clock,
            num_coordinates=size,
        )
        yield Connection(ask=ask, verify_keys=verify_keys or {}, take_figures=ask.take_figures)

    def announce(state: RunState) -> None:
        for line in (prospects(config, state.weights.size) or "").splitlines():
            _log.info("%s", line)

    resume, log = (out / "config.toml").is_file(), partial(log_round, scores=config.find_task().scores)
    run_in_directory(
        config, out, parts, over_the_grid, resume=resume, observers=[log], started=announce, secrets=secrets
    )


def log_round(metrics: Metrics, scores: Sequence[Score]) -> None:
    """Log one line per round: only figures that may be published."""
    figures = [f"{score.label} {metrics[score.name]:.4f}" for score in scores if score.name in metrics]
    if metrics["epsilon_pld"] is not None:
        figures.append(f"ε {human_epsilon(metrics['epsilon_pld'])}")
    figures += [f"up {metrics['bytes_up_per_client']} bytes", f"survivors {metrics['survivors']}"]
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in metrics["seconds"].items())
    _log.info("round %d: %s; seconds: %s", metrics["round"], ", ".join(figures), stages)


def _log_to_stderr() -> None:
    """Log to standard error. Flower keeps what an app writes, so nothing secret may be logged."""
    logger = logging.getLogger("lowkey")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
