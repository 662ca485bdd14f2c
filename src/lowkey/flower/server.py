"""The server's side of a Flower app: the same rounds as in a simulation, asked over Flower's grid."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from lowkey.deployment import directory_of, read_enrolment
from lowkey.errors import ConfigError, LowkeyError
from lowkey.experiments import Config, RunDirectory
from lowkey.experiments.play import Runtime, ServerParts, play
from lowkey.experiments.store import FAILURE_FILE
from lowkey.federation import RoundRecord
from lowkey.flower.grid import GridAsk
from lowkey.flower.node import load_config, secrets_from_environment, settings_digest
from lowkey.flower.nodes import Nodes
from lowkey.flower.tasks import load_task
from lowkey.flower.wire import VectorFormat
from lowkey.privacy import ClientLevelPrivacy
from lowkey.rounding import round_up
from lowkey.timing import StageClock

_log = logging.getLogger(__name__)


def server_app(config: Path, task: str | None = None) -> ServerApp:
    """The app of the server.

    Parameters
    ----------
    config : TOML file that comes with the app.
    task : module with the functions ``model`` and, for evaluation, ``test_data``; None for presets.

    The run's own settings, ``flwr run --run-config``: ``out``, the run directory, which is resumed if it exists, and
    ``enrolled``, the list of clients, for private schemes.
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
            serve(grid, context, load_config(config), task, out)
        except Exception as error:  # whoever stops a run knows why
            with contextlib.suppress(LowkeyError):
                RunDirectory.open(out).write_failure(str(error) or type(error).__name__)
            raise

    return app


def serve(grid: Grid, context: Context, config: Config, task_module: str | None, out: Path) -> None:
    """Play the run, or go on with it."""
    from lowkey.experiments.build import server_parts

    task, secrets = load_task(config, task_module), secrets_from_environment()
    parts = server_parts(config, task.model(), task.test_data(), task.objective)
    scheme, size = parts.scheme, parts.initial_weights.size
    directory = None
    if scheme.private:
        directory = directory_of(read_enrolment(Path(str(context.run_config.get("enrolled", "")))))
        if len(directory) != config.data.clients:
            raise ConfigError(f"{len(directory)} clients are enrolled; data.clients is {config.data.clients}")

    @contextmanager
    def over_the_grid(run: RunDirectory, clock: StageClock) -> Iterator[Runtime]:
        nodes = Nodes(
            grid,
            run=context.run_id,
            population=config.data.clients,
            directory=directory,
            terms=settings_digest(scheme, size),
            replays=not secrets.claims_privacy,
            seconds=config.deployment.agree_seconds,
            path=run.path / "nodes.json",
        )
        ask = GridAsk(
            grid,
            nodes,
            form=VectorFormat.of(scheme, size),
            waiting=config.deployment,
            least=_least(parts),
            clock=clock,
        )
        yield Runtime(ask=ask, directory=directory or {}, take_traffic=ask.take_traffic)

    resume = (out / "config.toml").is_file()
    play(config, out, parts, over_the_grid, resume=resume, observers=[log_round], secrets=secrets)


def log_round(record: RoundRecord) -> None:
    """One line a round: figures that may be published, and nothing else."""
    figures = [f"{name} {value:.4f}" for name, value in record.scores.items()]
    if record.epsilon is not None:
        figures.append(f"ε {round_up(record.epsilon.pld, 4)}")
    figures += [f"up {record.outcome.bytes_up_per_client} bytes", f"survivors {record.outcome.survivors}"]
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in record.seconds.items())
    _log.info("round %d: %s; seconds: %s", record.round, ", ".join(figures), stages)


def _least(parts: ServerParts) -> int:
    """Clients without whom a round cannot succeed."""
    privacy = parts.scheme.privacy
    return privacy.shares.survivors if isinstance(privacy, ClientLevelPrivacy) else privacy.survivors


def _log_to_stderr() -> None:
    """Flower keeps what an app writes; so that nothing secret may go here."""
    logger = logging.getLogger("lowkey")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
