"""The schemas. Outputs are memory of their own, whose strides follow from those of q, k and v.

Of `bwd`, `wanted` has the bits 1, 2 and 4 for d_q, d_k and d_v; what is not asked for is returned
without elements. It is a number since DTensor remembers shapes of results by the numbers of a call
alone."""

from collections.abc import Iterable
from typing import Any

import torch

# Inductor then hands the tensors over in the order of the dimensions that the outputs' strides were
# derived from.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)

LIBRARY: Any = torch.library.Library("flash_attention", "DEF")  # type: ignore[no-untyped-call]
LIBRARY.define(
    "fwd(Tensor q, Tensor k, Tensor v, float? softmax_scale=None, bool causal=False, "
    "bool deterministic=False) -> (Tensor o, Tensor lse)",
    tags=_TAGS,
)
LIBRARY.define(
    "bwd(Tensor? d_o, Tensor? d_lse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
    "float? softmax_scale, bool causal, bool deterministic, int wanted) "
    "-> (Tensor d_q, Tensor d_k, Tensor d_v)",
    tags=_TAGS,
)

fwd: Any = torch.ops.flash_attention.fwd.default
bwd: Any = torch.ops.flash_attention.bwd.default


def wanted_bits(wanted: Iterable[bool]) -> int:
    """Of q, k and v."""
    return sum(asked << i for i, asked in enumerate(wanted))


def is_wanted(bits: int) -> tuple[bool, bool, bool]:
    """Of q, k and v."""
    return bool(bits & 1), bool(bits & 2), bool(bits & 4)
