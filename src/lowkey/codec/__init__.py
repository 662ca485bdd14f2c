"""Compression: codecs make the linear map that clients apply in a round, decoders recover updates from it."""

from functools import lru_cache

from lowkey.codec import solvers
from lowkey.codec.adjoint import AdjointDecoder
from lowkey.codec.chunked_dct import ChunkedDCT, ChunkedOperator
from lowkey.codec.lasso import LassoDecoder
from lowkey.codec.layered import LayeredDecoder
from lowkey.codec.low_pass_dct import LowPassDCT, LowPassOperator
from lowkey.codec.random_subset import RandomSubset, SubsetOperator
from lowkey.codec.result import Certificates, Decoded
from lowkey.codec.whole import WholeOperator, WholeUpdate
from lowkey.protocols import Codec, Decoder, Operator, PublicNumbers
from lowkey.registry import Registry

CODECS: Registry[type[Codec]] = Registry(
    "codec.kind",
    {"whole": WholeUpdate, "random-subset": RandomSubset, "low-pass-dct": LowPassDCT, "chunked-dct": ChunkedDCT},
)
DECODERS: Registry[type[Decoder]] = Registry(
    "decoder.kind", {"adjoint": AdjointDecoder, "lasso": LassoDecoder, "layered": LayeredDecoder}
)


@lru_cache(maxsize=2)
def operator_of(codec: Codec, num_coordinates: int, public: PublicNumbers) -> Operator:
    """The operator of a codec; cached, since client and server use it several times in a round."""
    return codec.operator(num_coordinates, public)


__all__ = [
    "CODECS",
    "DECODERS",
    "AdjointDecoder",
    "Certificates",
    "ChunkedDCT",
    "ChunkedOperator",
    "Decoded",
    "LassoDecoder",
    "LayeredDecoder",
    "LowPassDCT",
    "LowPassOperator",
    "RandomSubset",
    "SubsetOperator",
    "WholeOperator",
    "WholeUpdate",
    "operator_of",
    "solvers",
]
