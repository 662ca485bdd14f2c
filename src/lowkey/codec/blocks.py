"""What decoders that work in blocks have in common."""

from __future__ import annotations

from lowkey import checks
from lowkey.codec.chunked_dct import ChunkedOperator
from lowkey.errors import InvalidInput
from lowkey.protocols import BlockOperator, Operator
from lowkey.types import FloatArray


def as_blocks(decoder: str, operator: Operator, measurements: FloatArray) -> tuple[BlockOperator, FloatArray]:
    """The operator as a block operator, and its measurements, checked to be finite, as (P, k)."""
    if not isinstance(operator, ChunkedOperator):
        raise InvalidInput(
            f"the {decoder} decoder needs the codec 'chunked-dct', not {type(operator).__name__}; "
            "use decoder.kind = 'adjoint' with this codec"
        )
    checks.vector_of("measurements", measurements, operator.num_measurements)
    checks.finite("the measurements", measurements)
    return operator, measurements.reshape(operator.num_blocks, operator.block_measurements)
