"""The launch arguments as bytes: the layout of csrc/include/flash/core/args.h.

The GPU and the emulator receive the same bytes. `tests/config/test_cpp_contracts.py` compares
every offset with what a C++ compiler says.
"""

import struct

POINTER_FIELDS = ("q", "k", "v", "o", "lse")
STRIDE_FIELDS = tuple(
    f"{tensor}_stride_{axis}" for tensor in "qkvo" for axis in ("batch", "seq", "head")
)
INT_FIELDS = ("batch", "seqlen_q", "seqlen_k", "n_heads_q", "n_heads_kv")
FLOAT_FIELDS = ("softmax_scale",)
FLAG_FIELDS = ("causal", "reserved")
FIELDS = POINTER_FIELDS + STRIDE_FIELDS + INT_FIELDS + FLOAT_FIELDS + FLAG_FIELDS

MAX_SEQLEN = 2**31 - 1 - 1024  # kMaxSeqlen

# Little-endian without padding: the header asserts that C++ adds none either.
_LAYOUT = struct.Struct("<5Q12q5if2i")
FORWARD_ARGS_SIZE = _LAYOUT.size
_pack = _LAYOUT.pack

Strides = tuple[int, int, int]  # (batch, seq, head), in elements


def pack_forward_args(
    *,
    q: int,
    k: int,
    v: int,
    o: int,
    lse: int,
    q_strides: Strides,
    k_strides: Strides,
    v_strides: Strides,
    o_strides: Strides,
    batch: int,
    seqlen_q: int,
    seqlen_k: int,
    n_heads_q: int,
    n_heads_kv: int,
    softmax_scale: float,
    causal: bool = False,
) -> bytes:
    """Pointers are addresses (`lse` may be 0: not written). On the path of every launch, so it
    checks nothing beyond what `struct` does; the caller has checked the tensors."""
    return _pack(
        q, k, v, o, lse, *q_strides, *k_strides, *v_strides, *o_strides,
        batch, seqlen_q, seqlen_k, n_heads_q, n_heads_kv, softmax_scale,
        causal, 0,
    )  # fmt: skip


def unpack_forward_args(data: bytes) -> dict[str, int | float]:
    """The fields by name: for error reports and tests."""
    if len(data) != FORWARD_ARGS_SIZE:
        raise ValueError(f"forward arguments have {FORWARD_ARGS_SIZE} bytes, got {len(data)}")
    return dict(zip(FIELDS, _LAYOUT.unpack(data), strict=True))
