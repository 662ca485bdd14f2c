"""The eight schemes of the paper, as compositions of codec, decoder, server rule and privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from lowkey.codec import LAMBDA_RULES, AdjointDecoder, Codec, CodecKind, LassoDecoder, LayeredDecoder
from lowkey.errors import InvalidInput
from lowkey.privacy import (
    ClientLevelPrivacy,
    NoPrivacy,
    Privacy,
    SamplingMode,
    make_sampling,
)
from lowkey.protocols import Decoder
from lowkey.server import Averaging, ErrorFeedback, ServerRule

DecoderKind: TypeAlias = Literal["adjoint", "lasso", "layered"]

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
    weight_by_examples : the mean is weighted by data size; never in private schemes, where it would break the bound.
    seed : names reproducible choices (order of local SGD; cohorts of schemes without privacy).
    """

    name: str
    codec: Codec
    decoder: Decoder
    server: ServerRule
    privacy: Privacy
    weight_by_examples: bool
    seed: int = 0

    @property
    def private(self) -> bool:
        return self.privacy.private

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
    sampling : a mode of :func:`lowkey.privacy.make_sampling`; schemes without privacy draw cohorts of a fixed size.
    seed : names the public shuffle and subsets, cohorts of schemes without privacy, and the order of local SGD.
    """
    if name not in SCHEMES:
        raise InvalidInput(f"scheme is {name!r}; it must be one of {', '.join(SCHEMES)}")
    family = name.removesuffix("-dp")
    private, compressed_sensing = name.endswith("-dp"), family == "fl-cs"
    codec = Codec(kind=_CODECS[family], ratio=ratio, chunks=chunks, public_seed=seed)
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
        privacy=_privacy(name, private, num_clients, cohort, clip_norm, noise_multiplier, delta, sampling),
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


def _privacy(
    name: str,
    private: bool,
    num_clients: int,
    cohort: int,
    clip_norm: float | None,
    noise_multiplier: float | None,
    delta: float,
    sampling: SamplingMode | None,
) -> Privacy:
    sampler = make_sampling(sampling or (None if private else "fixed"), population=num_clients, cohort=cohort)
    if not private:
        if clip_norm is not None or noise_multiplier is not None:
            raise InvalidInput(f"{name} gives no privacy; leave out clip_norm and noise_multiplier, or use {name}-dp")
        return NoPrivacy(sampling=sampler)
    if clip_norm is None or noise_multiplier is None:
        raise InvalidInput(
            f"{name} needs privacy.clip_norm and privacy.noise_multiplier; 'lowkey privacy calibrate' finds the noise "
            "for a target ε"
        )
    return ClientLevelPrivacy(sampling=sampler, clip_norm=clip_norm, noise_multiplier=noise_multiplier, delta=delta)
