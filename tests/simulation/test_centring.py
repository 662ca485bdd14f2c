"""A model with a centre: round 1 releases the mean features, the others learn the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import lowkey
from lowkey.errors import InvalidInput
from lowkey.federation import Federation, Schedule, Scheme, events_at_limit, initial_state
from lowkey.learning import CentredHead, FullGradient, HeadTrainer, model_shape, model_vector
from lowkey.privacy import Ledger, claimed_epsilon
from lowkey.rng import OSSecrets, ReplaySecrets
from lowkey.simulation import InProcess, SimulatedKeys, WorkerPool
from lowkey.timing import StageClock

CLIENTS, FEATURES, CLASSES = 30, 5, 3
PRIVACY = lowkey.ClientPrivacy(clip="normalise", epsilon=40.0, rounds=4, centring=0.2, dropouts=0.0, colluders=0.0)


def data() -> list[Any]:
    """Rows of norm 1 that share a mean."""
    rng = np.random.default_rng(0)
    made = []
    for client in range(CLIENTS):
        rows = rng.standard_normal((3 + client % 3, FEATURES)).astype(np.float32) + 2.0
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        made.append((rows, rng.integers(CLASSES, size=len(rows))))
    return made


def made(name: str, **changes: Any) -> Scheme:
    codec = lowkey.ChunkedDCT(ratio=0.5, chunks=2) if "cs" in name else None
    privacy = replace(PRIVACY, **changes) if name.endswith("-dp") else None
    scheme = lowkey.scheme(name, clients=CLIENTS, cohort=CLIENTS, codec=codec, privacy=privacy)
    head = CentredHead(FEATURES, CLASSES)
    return scheme.for_model(model_shape(head))


def rounds(scheme: Scheme, count: int, *, workers: int = 0, ledger: Ledger | None = None, replay: bool = True) -> Any:
    head = CentredHead(FEATURES, CLASSES)
    trainer = HeadTrainer(head, data(), FullGradient(steps=2))
    secrets, clock = ReplaySecrets(1) if replay else OSSecrets(), StageClock()
    keys = SimulatedKeys(CLIENTS, secrets)

    def run(ask: Any) -> Any:
        federation = Federation(
            scheme=scheme, ask=ask, secrets=secrets, clock=clock, verify_keys=keys.verify_keys,
            ledger=ledger or Ledger(None, run="r"),
        )  # fmt: skip
        state = federation.run(initial_state(scheme, model_vector(head)), Schedule(rounds=count))[0]
        return state, federation

    if workers == 0:
        client = lowkey.Client(scheme=scheme, trainer=trainer, secrets=secrets, keys=keys, clock=clock)
        return run(InProcess(client))
    with WorkerPool(scheme=scheme, trainer=trainer, secrets=secrets, workers=workers, clock=clock, keys=keys) as pool:
        return run(pool)


def test_the_head_computes_what_it_says() -> None:
    head = CentredHead(2, 1, constant=0.5)
    assert [name for name, _ in head.named_parameters()] == ["centre", "weight"]
    with torch.no_grad():
        head.centre[:] = torch.tensor([1.0, 0.0])
        head.weight[:] = torch.tensor([[2.0, 3.0, 4.0]])
    rows = torch.tensor([[4.0, 4.0], [1.0, 0.0]])  # minus the centre: (3, 4) of norm 5, and zeros
    assert head(rows)[:, 0].tolist() == pytest.approx([2 * 0.6 + 3 * 0.8 + 4 * 0.5, 4 * 0.5])


def test_updates_are_the_mean_and_those_of_automatic_differentiation() -> None:
    head = CentredHead(FEATURES, CLASSES)
    trainer = HeadTrainer(head, data(), FullGradient(learning_rate=0.7))
    weights = np.random.default_rng(5).standard_normal(trainer.num_coordinates).astype(np.float32)
    lowkey.learning.load_vector(head, weights)
    rows, targets = data()[4]
    loss = F.cross_entropy(head(torch.from_numpy(rows)), torch.from_numpy(targets))
    (gradient,) = torch.autograd.grad(loss, [head.weight])
    update = trainer.train(weights, 4, np.random.default_rng(0)).update
    np.testing.assert_allclose(update[:FEATURES], rows.mean(0) - weights[:FEATURES], rtol=1e-5)
    np.testing.assert_allclose(update[FEATURES:], -0.7 * gradient.numpy().ravel(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["fl-std", "fl-std-dp", "fl-cs-dp"])
def test_round_1_learns_the_centre_and_the_others_the_rest(name: str) -> None:
    scheme = made(name)
    first, _ = rounds(scheme, 1)
    means = np.mean([rows.mean(0) for rows, _ in data()], axis=0)
    close = {"fl-std": 1e-5}.get(name, 0.4)  # the noise of ε = 40 over 30 clients
    np.testing.assert_allclose(first.weights[:FEATURES], means, atol=close)
    assert not first.weights[FEATURES:].any()
    last, _ = rounds(scheme, 3)
    np.testing.assert_array_equal(last.weights[:FEATURES], first.weights[:FEATURES])
    assert last.weights[FEATURES:].any()


@pytest.mark.parametrize("name", ["fl-std", "fl-std-dp", "fl-cs-dp"])
def test_the_runtime_makes_no_difference(name: str) -> None:
    reference = rounds(made(name), 3)[0].weights
    for workers in (1, 2):
        np.testing.assert_array_equal(rounds(made(name), 3, workers=workers)[0].weights, reference)


def test_masked_sums_are_the_plain_ones() -> None:
    aggregations: tuple[Literal["plain", "masked"], ...] = ("plain", "masked")
    plain, masked = (rounds(made("fl-std-dp", aggregation=kind), 3)[0].weights for kind in aggregations)
    np.testing.assert_array_equal(plain, masked)


def test_both_kinds_of_release_are_in_the_ledger_and_within_the_target() -> None:
    scheme = made("fl-std-dp")
    state, federation = rounds(scheme, 4, replay=False)
    events = federation.ledger.events
    assert state.round == 4
    settings = scheme.privacy.settings  # type: ignore[attr-defined]
    assert [event.noise_multiplier for event in events] == [settings.centring_noise] + 3 * [settings.noise_multiplier]
    spent = claimed_epsilon(events, PRIVACY.delta)
    assert federation.epsilon().claimed == pytest.approx(spent, abs=2e-4)
    assert federation.server_epsilon() == pytest.approx(spent, rel=1e-6)
    assert spent < federation.server_epsilon_limit() <= 40.0 + 1e-6


def test_a_client_gives_its_mean_no_more_than_twice() -> None:
    scheme = made("fl-std-dp")
    trainer = HeadTrainer(CentredHead(FEATURES, CLASSES), data(), FullGradient())
    client = lowkey.Client(scheme=scheme, trainer=trainer, secrets=OSSecrets())
    state, weights = lowkey.federation.ClientState(0), np.zeros(trainer.num_coordinates, np.float32)
    for attempt in range(3):
        client.attendance.take()
        request = lowkey.federation.Request(round=1, attempt=attempt, weights=weights, clip_norm=1.0)
        state, reply = client.handle(state, request)
        assert reply.vector is not None
        assert len(reply.vector) == FEATURES
        assert client.attendance.tried == (1 if attempt < 2 else 0)


def test_model_and_settings_must_agree() -> None:
    head = CentredHead(FEATURES, CLASSES)
    plain = lowkey.scheme("fl-std-dp", clients=30, cohort=30, privacy=replace(PRIVACY, centring=0.0))
    with pytest.raises(InvalidInput, match=r"set privacy\.centring, such as 0\.05"):
        plain.for_model(model_shape(head))
    centred = lowkey.scheme("fl-std-dp", clients=30, cohort=30, privacy=PRIVACY)
    with pytest.raises(InvalidInput, match=r"privacy\.centring is 0\.2, but the model has no centre"):
        centred.for_layers([3])


def test_sparse_rows_are_refused() -> None:
    import scipy.sparse

    rows = scipy.sparse.csr_array(np.eye(FEATURES, dtype=np.float32))
    trainer = HeadTrainer(CentredHead(FEATURES, CLASSES), [(rows, np.zeros(FEATURES, int))], FullGradient())
    with pytest.raises(InvalidInput, match="sparse"):
        trainer.train(np.zeros(trainer.num_coordinates, np.float32), 0, np.random.default_rng(0))


def test_the_servers_limit_counts_the_dearest_that_a_client_may_give() -> None:
    """Few rounds are dearer than the centre: a client may have missed that, and given rounds up to its limit."""
    for centring, dearer in ((0.02, True), (0.4, False)):
        scheme = made("fl-std-dp", centring=centring)
        usual, first = scheme.privacy.event(), scheme.at(1).privacy.event()
        limit = scheme.privacy.max_contributions
        assert usual is not None
        assert first is not None
        assert limit is not None
        assert (usual.noise_multiplier < first.noise_multiplier) is dearer
        counts = [(event.noise_multiplier, event.count) for event in events_at_limit(scheme)]
        if dearer:
            assert counts == [(usual.noise_multiplier, limit)]
        else:
            assert counts == [(first.noise_multiplier, 2), (usual.noise_multiplier, limit - 2)]
