"""What is learned from what: a preset, or an app's own model and data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from lowkey.errors import ConfigError
from lowkey.experiments import Config
from lowkey.types import ClientId

NodeConfig = Mapping[str, Any]
"""What a node was started with: ``flower-supernode --node-config``."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an app brings; each part is called where it is needed and nowhere else.

    Attributes
    ----------
    model : makes the ``torch.nn.Module``.
    local_data : loads this node's examples, given its settings.
    test_data : loads what the server judges the model by, or gives None.
    objective : a :class:`lowkey.Objective`.
    """

    model: Callable[[], Any]
    local_data: Callable[[NodeConfig], Any]
    test_data: Callable[[], Any]
    objective: Any


def load_task(config: Config, module: str | None) -> Task:
    """The task of an app; imports PyTorch."""
    if module is None:
        return _preset(config)
    from lowkey.learning import CLASSIFICATION

    found = import_module(module)
    missing = [name for name in ("model", "local_data") if not callable(getattr(found, name, None))]
    if missing:
        raise ConfigError(f"{module} has no function {' and no '.join(missing)}; 'lowkey flower new' shows them")
    return Task(
        model=found.model,
        local_data=found.local_data,
        test_data=getattr(found, "test_data", lambda: None),
        objective=getattr(found, "objective", CLASSIFICATION),
    )


def client_of(node: NodeConfig) -> ClientId:
    """Which client a node is."""
    number = node.get("client", node.get("partition-id"))
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConfigError("the node does not say which client it is; start it with --node-config 'client=0 ...'")
    return number


def _preset(config: Config) -> Task:
    from lowkey.experiments.tasks import client_datasets_of, held_out_examples_of, model_of, objective_of

    return Task(
        model=lambda: model_of(config),
        local_data=lambda node: client_datasets_of(config)[client_of(node)],
        test_data=lambda: held_out_examples_of(config),
        objective=objective_of(config),
    )
