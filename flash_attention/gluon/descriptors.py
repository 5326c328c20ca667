"""What a launch of a Gluon kernel is given; shared by the GPU launch and the offline compiler."""

from __future__ import annotations

import math
from typing import Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ..triton_calls import Problem
from .config import GluonForwardConfig

LOG2_E = math.log2(math.e)
# K and V of the heads that run abreast (causal) shall stay in the L2 cache.
_L2_SHARE_BYTES = 24 * 2**20
_MAX_SECTION = 32


def descriptor(tensor: Any, rows: int, dtype: Any) -> TensorDescriptor:
    """A (batch, seq, heads, d) tensor as TMA sees it: boxes of `rows` rows of one head."""
    batch, seq, heads, d_head = tensor.shape
    by_batch, by_row, by_head, _ = (
        # The stride of a dimension of one element is never used, but TMA checks it.
        d_head if n == 1 else s
        for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    )
    box = [1, 1, rows, d_head]
    layout = gl.NVMMASharedLayout.get_default_for(box, dtype)
    return TensorDescriptor(
        tensor, [batch, heads, seq, d_head], [by_batch, by_head, by_row, 1], box, layout
    )


def heads_abreast(problem: Problem) -> int:
    """How many heads a section of the causal order holds: their K and V stay in the L2 cache."""
    kv_bytes = max(1, problem.seqlen_k) * problem.d_head * 4
    group = problem.n_heads // problem.n_heads_kv
    heads = max(1, _L2_SHARE_BYTES // kv_bytes) * group
    return int(min(heads, max(_MAX_SECTION, group)))


def kernel_arguments(
    config: GluonForwardConfig, problem: Problem, ping_pong: bool, q: Any, k: Any, v: Any, o: Any
) -> tuple[list[Any], dict[str, Any], int]:
    """(arguments, compile-time arguments, tiles) of one launch. Tensors are torch's, or anything
    with a shape, strides, a dtype and an address."""
    rows = config.BLOCK_M // config.NUM_MMA_GROUPS
    dtype = {"float16": gl.float16, "bfloat16": gl.bfloat16}[str(q.dtype).removeprefix("torch.")]
    n_tiles = -(-problem.seqlen_q // config.BLOCK_M)
    n_heads_all = problem.batch * problem.n_heads
    arguments = [
        descriptor(q, rows, dtype),
        descriptor(k, config.BLOCK_N, dtype),
        descriptor(v, config.BLOCK_N, dtype),
        descriptor(o, rows, dtype),
        problem.seqlen_q,
        problem.seqlen_k,
        problem.n_heads,
        problem.n_heads // problem.n_heads_kv,
        n_tiles,
        n_heads_all,
        heads_abreast(problem),
        problem.softmax_scale * LOG2_E,
    ]
    constants = {
        "BLOCK_M": config.BLOCK_M,
        "NUM_BUFFERS": config.NUM_BUFFERS,
        "NUM_MMA_GROUPS": config.NUM_MMA_GROUPS,
        "GROUP_WARPS": config.num_warps,
        "MMA_REGS": config.mma_regs,
        "CAUSAL": problem.causal,
        "PING_PONG": ping_pong,
        "FENCE": config.OVERLAP_FENCE if ping_pong else "none",
        "OPTIMISTIC": config.OPTIMISTIC and ping_pong,
        "num_warps": config.num_warps,
    }
    return arguments, constants, n_tiles * n_heads_all
