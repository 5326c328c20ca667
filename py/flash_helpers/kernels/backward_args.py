"""The launch arguments of a backward pass as bytes: the layout of
csrc/include/flash/core/backward_args.h, and the sizes of what it points to.

The GPU and the emulator receive the same bytes. `tests/config/test_cpp_contracts.py` compares
every offset with what a C++ compiler says.
"""

import math
import struct
from collections.abc import Mapping

from .forward_args import Strides

INPUTS = ("q", "k", "v", "o", "d_o")
GRADIENTS = ("d_q", "d_k", "d_v")
STRIDED = INPUTS + GRADIENTS
POINTER_FIELDS = (*INPUTS, "lse", "d_lse", *GRADIENTS, "row_stats", "d_q_sums")
STRIDE_FIELDS = tuple(
    f"{name}_stride_{axis}" for name in STRIDED for axis in ("batch", "seq", "head")
)
INT_FIELDS = ("batch", "seqlen_q", "seqlen_k", "n_heads_q", "n_heads_kv")
# Of families that serve alone.
LENGTH_FIELDS = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")
RULE_FIELDS = ("window_left", "window_right", "softcap", "reserved_too")
FIELDS = (
    POINTER_FIELDS + STRIDE_FIELDS + INT_FIELDS + ("softmax_scale", "causal", "head_splits")
    + LENGTH_FIELDS + RULE_FIELDS
)  # fmt: skip

# RowStats of a query row: floats, and how many rows a head's are filled up to a multiple of.
ROW_STATS_FLOATS = 2
ROW_STATS_BLOCK = 128

# Little-endian without padding: the header asserts that C++ adds none either.
_LAYOUT = struct.Struct(f"<{len(POINTER_FIELDS)}Q{len(STRIDE_FIELDS)}q5if2i4Q2ifi")
BACKWARD_ARGS_SIZE = _LAYOUT.size


def row_stats_block(columns: int) -> int:
    """What a head's rows are filled up to, so that blocks of `columns` queries end with them, and
    those of the kernel that makes RowStats, of 32 rows at most."""
    return math.lcm(32, columns) if ROW_STATS_BLOCK % columns else ROW_STATS_BLOCK


def row_stats_rows(seqlen_q: int, block: int = ROW_STATS_BLOCK) -> int:
    """Rows with RowStats of one head."""
    return -(-seqlen_q // block) * block


def packed_stats_rows(n_rows: int, batch: int) -> int:
    """The same of packed sequences, n_rows rows together, each of which begins with a whole
    block."""
    return (n_rows // ROW_STATS_BLOCK + batch) * ROW_STATS_BLOCK


def pack_backward_args(
    pointers: Mapping[str, int],
    strides: Mapping[str, Strides],
    *,
    batch: int,
    seqlen_q: int,
    seqlen_k: int,
    n_heads_q: int,
    n_heads_kv: int,
    softmax_scale: float,
    causal: bool = False,
    head_splits: int = 0,
    served: Mapping[str, int | float] | None = None,
) -> bytes:
    """Pointers are addresses, by name (0 or left out: d_lse there is none, a gradient that is not
    wanted); strides are in elements, by name (left out: of a gradient that is not wanted).
    `head_splits`: as in the header, by a launcher alone.
    `served`: LENGTH_FIELDS and RULE_FIELDS that are not 0. It checks nothing beyond what `struct`
    does; the caller has checked the tensors."""
    none = (0, 0, 0)
    return _LAYOUT.pack(
        *(pointers.get(name, 0) for name in POINTER_FIELDS),
        *(stride for name in STRIDED for stride in strides.get(name, none)),
        batch, seqlen_q, seqlen_k, n_heads_q, n_heads_kv, softmax_scale,
        causal, head_splits, *((served or {}).get(name, 0) for name in LENGTH_FIELDS + RULE_FIELDS),
    )  # fmt: skip


def unpack_backward_args(data: bytes) -> dict[str, int | float]:
    """The fields by name: for error reports and tests."""
    if len(data) != BACKWARD_ARGS_SIZE:
        raise ValueError(f"backward arguments have {BACKWARD_ARGS_SIZE} bytes, got {len(data)}")
    return dict(zip(FIELDS, _LAYOUT.unpack(data), strict=True))


def with_head_splits(data: bytes, head_splits: int) -> bytes:
    """What a fused kernel's launcher makes of a caller's record."""
    fields = unpack_backward_args(data)
    return _LAYOUT.pack(*(fields | {"head_splits": head_splits}).values())
