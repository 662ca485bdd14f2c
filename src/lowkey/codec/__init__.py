"""Compression: linear operators that clients apply, decoders that the server runs."""

from lowkey.codec.adjoint import AdjointDecoder
from lowkey.codec.codecs import Codec, CodecKind
from lowkey.codec.lasso import LassoDecoder
from lowkey.codec.operators import ChunkedDCT, Identity, LowPassDCT, RandomSubset
from lowkey.codec.regularisation import LAMBDA_RULES, LambdaRule, RelativeToMax, RelativeToRms
from lowkey.codec.result import Decoded

__all__ = [
    "LAMBDA_RULES",
    "AdjointDecoder",
    "ChunkedDCT",
    "Codec",
    "CodecKind",
    "Decoded",
    "Identity",
    "LambdaRule",
    "LassoDecoder",
    "LowPassDCT",
    "RandomSubset",
    "RelativeToMax",
    "RelativeToRms",
]
