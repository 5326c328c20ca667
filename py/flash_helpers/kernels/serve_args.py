"""The launch arguments of kernels that serve sequences of different lengths and caches, as bytes:
the layout of csrc/include/flash/core/serve_args.h, which says what each field means.

The GPU and the emulator receive the same bytes. `tests/config/test_cpp_contracts.py` compares
every offset with what a C++ compiler says.
"""

import struct
from collections.abc import Mapping

POINTER_FIELDS = (
    "q", "k", "v", "o", "lse", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k",
    "leftpad_k", "cache_batch_idx", "block_table", "sinks", "o_partial", "lse_partial",
    "arrivals",
    "q_new", "k_new", "v_new", "cu_seqlens_new", "rotary_seqlens", "rotary_cos", "rotary_sin",
)  # fmt: skip
STRIDE_FIELDS = (
    *(f"q_stride_{axis}" for axis in ("batch", "seq", "head")),
    *(f"{name}_stride_{axis}" for name in "kv" for axis in ("page", "seq", "head")),
    *(f"o_stride_{axis}" for axis in ("batch", "seq", "head")),
    "lse_stride_batch", "lse_stride_head",
    *(f"{name}_new_stride_{axis}" for name in "qkv" for axis in ("batch", "seq", "head")),
    "table_stride",
)  # fmt: skip
INT_FIELDS = (
    "batch", "n_rows", "seqlen_q", "seqlen_k", "page_size", "n_heads_q", "n_heads_kv", "d_head",
    "d_v", "n_splits", "window_left", "window_right", "n_new", "seqlen_new", "rotary_dim",
    "rotary_rows", "rotary_interleaved", "rotary_each_query",
)  # fmt: skip
FLOAT_FIELDS = ("softmax_scale", "softcap")
LATENT_FIELDS = ("qv", *(f"qv_stride_{axis}" for axis in ("batch", "seq", "head")))
FIELDS = POINTER_FIELDS + STRIDE_FIELDS + INT_FIELDS + FLOAT_FIELDS + LATENT_FIELDS

NO_WINDOW = 2**31 - 1  # kNoWindow

# Little-endian without padding: the header asserts that C++ adds none either.
_LAYOUT = struct.Struct(
    f"<{len(POINTER_FIELDS)}Q{len(STRIDE_FIELDS)}q{len(INT_FIELDS)}i{len(FLOAT_FIELDS)}fQ3q"
)
SERVE_ARGS_SIZE = _LAYOUT.size


def pack_serve_args(values: Mapping[str, int | float]) -> bytes:
    """The record of these fields; those left out are 0 (pointers: there is none). It checks nothing
    beyond their names and what `struct` does; the caller has checked the tensors."""
    if unknown := values.keys() - set(FIELDS):
        raise ValueError(f"ServeArgs has no {', '.join(sorted(unknown))}")
    return _LAYOUT.pack(*(values.get(name, 0) for name in FIELDS))


def unpack_serve_args(data: bytes) -> dict[str, int | float]:
    """The fields by name: for error reports and tests."""
    if len(data) != SERVE_ARGS_SIZE:
        raise ValueError(f"serving arguments have {SERVE_ARGS_SIZE} bytes, got {len(data)}")
    return dict(zip(FIELDS, _LAYOUT.unpack(data), strict=True))
