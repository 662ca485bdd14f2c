"""Compression: linear operators that clients apply, decoders that the server runs."""

from lowkey.codec.adjoint import AdjointDecoder
from lowkey.codec.codecs import Codec, CodecKind
from lowkey.codec.lasso import LassoDecoder
from lowkey.codec.layered import LayeredDecoder
from lowkey.codec.operators import ChunkedDCT, Identity, LowPassDCT, RandomSubset
from lowkey.codec.regularisation import LAMBDA_RULES, Fixed, LambdaRule, RelativeToMax, RelativeToNoise, RelativeToRms
from lowkey.codec.result import Decoded
from lowkey.codec.solvers import SOLVERS

__all__ = [
    "LAMBDA_RULES",
    "SOLVERS",
    "AdjointDecoder",
    "ChunkedDCT",
    "Codec",
    "CodecKind",
    "Decoded",
    "Fixed",
    "Identity",
    "LambdaRule",
    "LassoDecoder",
    "LayeredDecoder",
    "LowPassDCT",
    "RandomSubset",
    "RelativeToMax",
    "RelativeToNoise",
    "RelativeToRms",
]
