"""One member of a masked round adds fifteen times its bound, and the check of the sum does not see it.

The server sees only the sum, and that is within what twelve members together may add. So with masks
alone the lie is in the model, and nobody knows whose it was. With ``privacy.proofs`` every member commits to its vector
and proves that it is no longer than a contribution and a share of noise. The liar has three ways left, and each is
tried here: to send no proof, a forged one, or the proof of another vector than the one that it sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowkey.codec import ChunkedDCT
from lowkey.errors import RoundFailed
from lowkey.federation import (
    Adverts,
    Client,
    Reply,
    Request,
    RoundOutcome,
    Scheme,
    drive,
    initial_state,
    round_flow,
    scheme,
)
from lowkey.privacy import ClientPrivacy, Ledger
from lowkey.rng import BitSource, ReplaySecrets
from lowkey.secagg import Delivery, Masked, view_digest
from lowkey.secagg.messages import adverts_digest, sign_vector
from lowkey.simulation import InProcess, SimulatedKeys
from lowkey.timing import StageClock
from lowkey.types import ClientId, Words
from tests.federation.test_round import DIMENSION, Pull
from tests.federation.vanishing import Vanishing

pytest.importorskip("nacl", reason="proofs need the extra 'proofs'")

from lowkey.privacy import ClientMechanism, Noised, NormBound

DEFENDS = (
    "With privacy.proofs every member proves under its mask that its vector, noise included, is no longer than honest "
    "ones are with probability 1 − 2⁻⁶⁴; who does not is left out of the sum, and a sum of other vectors than the "
    "proven ones is not used."
)

MEMBERS, LIAR, TIMES, RUN = 12, 5, 15, "test"
Answer = Callable[[Reply, tuple[bytes, bytes]], Reply]


class Few(Pull):
    num_clients = MEMBERS


def crowd(**changes: Any) -> Scheme:
    settings: dict[str, Any] = {"clip_norm": 2.0, "noise_multiplier": 2.0, "sampling": "all", "aggregation": "masked"}
    return scheme(
        "fl-cs-dp", clients=MEMBERS, cohort=MEMBERS, codec=ChunkedDCT(ratio=0.5, chunks=3), seed=0,
        privacy=ClientPrivacy(**settings | changes),
    )  # fmt: skip


class Lying:
    """A runtime in which the liar's answers are changed on their way."""

    def __init__(self, ask: Any, answer: Answer) -> None:
        self._ask, self._answer = ask, answer
        self._adverts, self._told, self._going = b"", (b"", b""), tuple[ClientId, ...]()

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        match requests[LIAR].message if LIAR in requests else None:
            case Adverts(advertisers=advertisers, adverts=adverts):
                self._going, self._adverts = advertisers, adverts_digest(adverts)
            case Delivery() as delivery:
                self._told = view_digest(self._going, delivery.sharers, ()), self._adverts
        for client, reply in self._ask(requests):
            yield client, self._answer(reply, self._told) if client == LIAR and reply.vector is not None else reply


def shift(own: Scheme) -> Words:
    """Fifteen times the bound, evenly over all coordinates; masks let it through unchanged."""
    length = own.operator(DIMENSION, 1).num_measurements
    encoding = own.privacy.encoding(length)  # type: ignore[attr-defined]
    return np.full(encoding.wire_length, round(TIMES * encoding.sensitivity / math.sqrt(length)), np.uint32)


def signed(own: Scheme, reply: Reply, told: tuple[bytes, bytes], vector: Words, proof: bytes) -> Reply:
    """The liar's answer with another vector or proof, under its own signature."""
    roster, terms = tuple(range(MEMBERS)), own.terms(DIMENSION, 1)
    session, identity = own.session(RUN, 1, 0, roster, terms), SimulatedKeys(MEMBERS, ReplaySecrets(3)).identity(LIAR)
    return replace(reply, vector=vector, message=sign_vector(session, identity, *told, vector, proof))


def lengthened(own: Scheme) -> Answer:
    """Another vector than the one that was proven."""

    def answer(reply: Reply, told: tuple[bytes, bytes]) -> Reply:
        longer = (np.asarray(reply.vector, np.uint32) + shift(own)) & np.uint32(2**20 - 1)
        return signed(own, reply, told, longer, reply.message.proof if isinstance(reply.message, Masked) else b"")

    return answer


def play(
    own: Scheme, ask: Callable[[InProcess], Any], ledger: Ledger | None = None, theirs: Scheme | None = None
) -> RoundOutcome:
    """One round of a server with these settings; clients have the same unless told otherwise."""
    secrets = ReplaySecrets(3)
    keys = SimulatedKeys(MEMBERS, secrets)
    client = Client(scheme=theirs or own, trainer=Few(), secrets=secrets, keys=keys)
    flow = round_flow(
        own, initial_state(own, np.zeros(DIMENSION, np.float32)), secrets=secrets,
        ledger=ledger or Ledger(None, run=RUN), clock=StageClock(), verify_keys=keys.verify_keys,
    )  # fmt: skip
    return drive(flow, ask(InProcess(client)))


def model(outcome: RoundOutcome) -> np.ndarray:
    return outcome.state.weights


def test_without_proofs_the_lie_is_in_the_model() -> None:
    own = crowd()
    honest, lied = play(own, lambda ask: ask), play(own, lambda ask: Lying(ask, lengthened(own)))
    assert np.linalg.norm(model(lied) - model(honest)) > 0.5 * np.linalg.norm(model(honest))


def test_another_vector_than_the_proven_one_is_not_used() -> None:
    """Nobody knows whose it was; the round is paid for and fails."""
    own, ledger = crowd(proofs=True), Ledger(None, run=RUN)
    with pytest.raises(RoundFailed, match="not that of the vectors that members proved"):
        play(own, lambda ask: Lying(ask, lengthened(own)), ledger)
    assert [entry.state for entry in ledger.entries] == ["ABORTED"]


def left_out(_proof: bytes) -> bytes:
    return b""


def forged(proof: bytes) -> bytes:
    return proof[:-1] + bytes([proof[-1] ^ 1])


@pytest.mark.parametrize("lie", [left_out, forged])
def test_without_a_true_proof_a_member_counts_as_dropped_out(lie: Callable[[bytes], bytes]) -> None:
    own = crowd(proofs=True)

    def answer(reply: Reply, told: tuple[bytes, bytes]) -> Reply:
        assert isinstance(reply.message, Masked)
        return signed(own, reply, told, np.asarray(reply.vector, np.uint32), lie(reply.message.proof))

    without = play(own, lambda ask: Vanishing(ask, {LIAR: 2}))
    np.testing.assert_array_equal(model(play(own, lambda ask: Lying(ask, answer))), model(without))


class Forger(NormBound):
    """Follows the protocol, but claims that nothing is left between its vector and the bound."""

    def prove(self, vector: Words, blinding: int, session: bytes, client: ClientId, source: BitSource) -> bytes:
        half = 2 ** (self.bits - 1)
        values = (vector.astype(np.int64) + half) % (2 * half) - half
        return self._claim(values, 0, blinding, session + client.to_bytes(8, "big"), source)


class Liar(ClientMechanism):
    def protect(self, *given: Any, **named: Any) -> Noised:
        honest = super().protect(*given, **named).value
        return Noised((honest + shift(crowd())) & np.uint32(2**20 - 1))

    def norm_bound(self, num_measurements: int) -> NormBound | None:
        bound = super().norm_bound(num_measurements)
        return bound and Forger(length=bound.length, bits=bound.bits, square=bound.square)


def test_a_long_vector_cannot_be_proven() -> None:
    own = crowd(proofs=True)
    honest = own.privacy
    assert isinstance(honest, ClientMechanism)
    liar = replace(own, privacy=Liar(settings=honest.settings, sampling=honest.sampling))

    def one_liar(ask: InProcess) -> Callable[[Mapping[ClientId, Request]], Iterator[tuple[ClientId, Reply]]]:
        secrets = ReplaySecrets(3)
        hostile = InProcess(Client(scheme=liar, trainer=Few(), secrets=secrets, keys=SimulatedKeys(MEMBERS, secrets)))

        def both(requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
            yield from ask({client: request for client, request in requests.items() if client != LIAR})
            yield from hostile({client: request for client, request in requests.items() if client == LIAR})

        return both

    without = play(own, lambda ask: Vanishing(ask, {LIAR: 2}))
    np.testing.assert_array_equal(model(play(own, one_liar)), model(without))


@pytest.mark.parametrize("asked", [False, True])
def test_members_agree_on_proofs_before_anything_is_sent(asked: bool) -> None:
    with pytest.raises(RoundFailed, match="0 of 12 members advertised"):
        play(crowd(proofs=asked), lambda ask: ask, theirs=crowd(proofs=not asked))


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_honest_rounds_are_the_same_with_and_without_proofs(aggregation: str) -> None:
    """Bit for bit, with dropouts that the shares bear."""
    gone = {3: 2, 9: 1}
    outcomes = [
        play(crowd(proofs=proofs, aggregation=aggregation), lambda ask: Vanishing(ask, gone))
        for proofs in (False, True)
    ]
    np.testing.assert_array_equal(model(outcomes[0]), model(outcomes[1]))


def test_in_a_plain_sum_long_vectors_are_seen() -> None:
    own = crowd(proofs=True, aggregation="plain")
    without = play(own, lambda ask: Vanishing(ask, {LIAR: 2}))
    np.testing.assert_array_equal(model(play(own, lambda ask: Lying(ask, lengthened(own)))), model(without))
