"""The eight schemes of the paper, as compositions of codec, decoder, server rule and privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from lowkey.codec import LAMBDA_RULES, AdjointDecoder, Codec, CodecKind, LassoDecoder, LayeredDecoder
from lowkey.errors import InvalidInput
from lowkey.privacy import AdaptiveClip, ClientLevelPrivacy, NoPrivacy, Privacy, SamplingMode, Terms, make_sampling
from lowkey.protocols import Decoder, Operator
from lowkey.secagg import Session, session_graph
from lowkey.server import Averaging, ErrorFeedback, ServerRule
from lowkey.types import ClientId

DecoderKind: TypeAlias = Literal["adjoint", "lasso", "layered"]
Aggregation: TypeAlias = Literal["plain", "masked"]

_CODECS: dict[str, CodecKind] = {
    "fl-std": "identity",
    "fl-rnd": "random-subset",
    "fl-freq": "low-pass-dct",
    "fl-cs": "chunked-dct",
}
SCHEMES = (*_CODECS, *(f"{name}-dp" for name in _CODECS))


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A way to learn together: what clients send, how it is protected, what the server makes of it.

    Attributes
    ----------
    name : one of SCHEMES.
    codec, decoder, server, privacy : the four parts.
    aggregation : how private vectors are added: "masked" under secure aggregation, or "plain", which gives the same
        bits to a server that sees every vector (simulation only).
    weight_by_examples : the mean is weighted by data size; never in private schemes, where it would break the bound.
    seed : names reproducible choices (order of local SGD; cohorts of schemes without privacy).
    """

    name: str
    codec: Codec
    decoder: Decoder
    server: ServerRule
    privacy: Privacy
    aggregation: Aggregation = "plain"
    weight_by_examples: bool
    seed: int = 0

    @property
    def private(self) -> bool:
        return self.privacy.private

    def wire_length(self, operator: Operator) -> int:
        """Numbers in one client's vector."""
        measurements, privacy = operator.num_measurements, self.privacy
        return privacy.encoding(measurements).wire_length if isinstance(privacy, ClientLevelPrivacy) else measurements

    def vector_bytes(self, operator: Operator) -> int:
        """Bytes of one client's vector on the wire."""
        bits = self.privacy.bits if isinstance(self.privacy, ClientLevelPrivacy) else 32
        return math.ceil(self.wire_length(operator) * bits / 8)

    def terms(self, num_coordinates: int, number: int) -> Terms:
        """What everybody who agreed to this scheme must agree on in a round; only of private schemes."""
        privacy = self.privacy
        if not isinstance(privacy, ClientLevelPrivacy):
            raise InvalidInput(f"{self.name} sends vectors openly; only private schemes are aggregated securely")
        members, (survivors, honest) = privacy.sampling.roster_size, privacy.shares
        neighbours, shares_needed = session_graph(members, survivors, survivors - honest)
        return Terms(
            scheme=self.name,
            noise_multiplier=privacy.noise_multiplier,
            clip_rule=f"{privacy.clip_norm!r}" + (f" {privacy.adaptive}" if privacy.adaptive else ""),
            bits=privacy.bits,
            length=self.wire_length(self.codec.operator(num_coordinates, number)),
            members=members,
            survivors=survivors,
            honest=honest,
            neighbours=neighbours,
            shares_needed=shares_needed,
            delta=privacy.delta,
            sampling=privacy.sampling.mode,
            coin=privacy.sampling.coin,
            codec=self.codec.kind + (" with signs" if self.codec.signs else ""),
            ratio=self.codec.ratio,
            chunks=self.codec.chunks,
            public_seed=self.codec.public_seed,
            model_size=num_coordinates,
        )

    @staticmethod
    def session(run: str, number: int, attempt: int, roster: tuple[ClientId, ...], terms: Terms) -> Session:
        """The secure aggregation of one attempt at a round, as everybody with these terms sets it up."""
        return Session(
            run=run,
            round=number,
            attempt=attempt,
            roster=roster,
            members=terms.members,
            survivors=terms.survivors,
            colluders=terms.colluders,
            neighbours=terms.neighbours,
            shares_needed=terms.shares_needed,
            bits=terms.bits,
            length=terms.length,
            terms=terms.digest(),
        )

    def for_layers(self, layers: Sequence[int]) -> Scheme:
        """The same scheme for a model whose parameter tensors have these sizes, in their natural order.

        Only the layered decoder needs to know; :func:`lowkey.simulate` and presets tell it by themselves.
        """
        if not isinstance(self.decoder, LayeredDecoder):
            return self
        return replace(self, decoder=self.decoder.for_layers(layers))


def make_scheme(
    name: str,
    *,
    num_clients: int,
    cohort: int,
    ratio: float = 1.0,
    chunks: int = 200,
    decoder: DecoderKind | None = None,
    lambda_rule: str = "relative-to-rms",
    lambda_factor: float = 1.0,
    solver: str = "active-set",
    tolerance: float = 1e-3,
    max_iterations: int = 1000,
    server_rate: float | None = None,
    momentum: float | None = None,
    clip_norm: float | None = None,
    noise_multiplier: float | None = None,
    delta: float = 1e-5,
    sampling: SamplingMode | None = None,
    roster: int | None = None,
    bits: int | None = None,
    signs: bool | None = None,
    dropouts: float = 0.1,
    colluders: float = 0.1,
    adaptive_clip: bool = False,
    max_contributions: int | None = None,
    aggregation: Aggregation = "plain",
    min_clients: int = 1,
    seed: int = 0,
) -> Scheme:
    """Compose one of the eight schemes.

    Parameters
    ----------
    name : "fl-std", "fl-rnd", "fl-freq", "fl-cs", or one of these with "-dp".
    num_clients : N, enrolled clients.
    cohort : expected number of clients in a round.
    ratio : measurements over parameters, in (0, 1]; "fl-std" sends everything and takes only 1.
    chunks : P of "fl-cs".
    decoder : of "fl-cs": "layered" (default), "lasso" (the paper's) or "adjoint" (default of "fl-cs-dp").
    lambda_rule, lambda_factor, solver : of the LASSO.
    tolerance, max_iterations : relative duality gap at which the decoder is content, and when it gives up.
    server_rate, momentum : of the server; 0.35 and 0.9 by default for "fl-cs", 1 and 0 for the others.
    clip_norm, noise_multiplier, delta : of private schemes; the first two have no default.
    sampling : of private schemes: "all" (default when the cohort is everyone), "poisson_padded" (default otherwise),
        "secret_poisson" or "fixed"; the others draw cohorts of a fixed size.
    roster : expected number of clients that flip a secret coin in "secret_poisson"; everyone by default.
    bits : of the integers that private clients send: 16, 20 (default) or 24 (default when nothing is compressed).
    signs : of "fl-cs": change public random signs before the DCT; by default only with 16 bits.
    dropouts, colluders : shares of a roster that a private round tolerates; noise is scaled up for them.
    adaptive_clip : let ``clip_norm`` follow the median norm of updates, privately.
    max_contributions : rounds in which one client's data may be used; None for no limit.
    aggregation : "masked" runs the whole secure aggregation, "plain" adds the same integers openly (simulation).
    min_clients : least number of answers that make a round without privacy; in private ones ``dropouts`` says it.
    seed : names the public shuffle and subsets, cohorts of schemes without privacy, and the order of local SGD.
    """
    if name not in SCHEMES:
        raise InvalidInput(f"scheme is {name!r}; it must be one of {', '.join(SCHEMES)}")
    if not name.endswith("-dp") and sampling not in (None, "fixed"):
        raise InvalidInput(f"sampling is {sampling!r}; {name}, without privacy, draws cohorts of a fixed size")
    family = name.removesuffix("-dp")
    private, compressed_sensing = name.endswith("-dp"), family == "fl-cs"
    bits = bits or (20 if ratio < 1 else 24)
    privacy: Privacy
    if not private:
        if clip_norm is not None or noise_multiplier is not None:
            raise InvalidInput(f"{name} gives no privacy; leave out clip_norm and noise_multiplier, or use {name}-dp")
        privacy = NoPrivacy(
            sampling=make_sampling("fixed", population=num_clients, cohort=cohort), survivors=min_clients
        )
    elif clip_norm is None or noise_multiplier is None:
        raise InvalidInput(
            f"{name} needs privacy.clip_norm and privacy.noise_multiplier; 'lowkey privacy calibrate' finds the noise "
            "for a target ε"
        )
    else:
        privacy = ClientLevelPrivacy(
            sampling=make_sampling(sampling, population=num_clients, cohort=cohort, roster=roster),
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            delta=delta,
            bits=bits,
            dropouts=dropouts,
            colluders=colluders,
            adaptive=AdaptiveClip(count_std=cohort / 20) if adaptive_clip else None,
            max_contributions=max_contributions,
        )
    codec = Codec(
        kind=_CODECS[family],
        ratio=ratio,
        chunks=chunks,
        signs=compressed_sensing and (private and bits <= 16 if signs is None else signs),
        public_seed=seed,
    )
    return Scheme(
        name=name,
        codec=codec,
        decoder=_decoder(
            decoder or ("layered" if name == "fl-cs" else "adjoint"),
            name, lambda_rule, lambda_factor, solver, tolerance, max_iterations,
        ),
        server=(
            ErrorFeedback(
                rate=0.35 if server_rate is None else server_rate, momentum=0.9 if momentum is None else momentum
            )
            if compressed_sensing
            else Averaging(
                rate=1.0 if server_rate is None else server_rate,
                momentum=0.0 if momentum is None else momentum,
                changing_operator=codec.changes_each_round,
            )
        ),
        privacy=privacy,
        aggregation=aggregation,
        weight_by_examples=not private and not compressed_sensing,
        seed=seed,
    )  # fmt: skip


def _decoder(
    kind: DecoderKind, scheme: str, rule: str, factor: float, solver: str, tolerance: float, max_iterations: int
) -> Decoder:
    if kind not in get_args(DecoderKind):
        raise InvalidInput(f"decoder.kind is {kind!r}; it must be one of {', '.join(get_args(DecoderKind))}")
    if rule not in LAMBDA_RULES:
        raise InvalidInput(f"decoder.lambda_rule is {rule!r}; it must be one of {', '.join(LAMBDA_RULES)}")
    if kind == "adjoint":
        return AdjointDecoder()
    if not scheme.startswith("fl-cs"):
        raise InvalidInput(f"decoder.kind is {kind!r}, which needs the chunks of fl-cs; {scheme} takes 'adjoint'")
    if kind == "layered":
        return LayeredDecoder(tolerance=tolerance, max_iterations=max_iterations)
    return LassoDecoder(
        rule=LAMBDA_RULES[rule](factor), solver=solver, tolerance=tolerance, max_iterations=max_iterations
    )
