"""What a launch of a Gluon kernel is given; shared by the GPU launch and the offline compiler."""

from __future__ import annotations

from typing import Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ..triton_kit.calls import COMPILE_OPTIONS, LOG2_E, Problem, heads_abreast
from .config import GluonForwardConfig


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


def kernel_arguments(
    config: GluonForwardConfig, problem: Problem, ping_pong: bool, q: Any, k: Any, v: Any, o: Any
) -> tuple[list[Any], dict[str, Any], int]:
    """(arguments, compile-time arguments, tiles) of one launch. Tensors are torch's, or anything
    with a shape, strides, a dtype and an address."""
    rows = config.BLOCK_M // config.NUM_MMA_GROUPS
    dtype = {"float16": gl.float16, "bfloat16": gl.bfloat16}[str(q.dtype).removeprefix("torch.")]
    arguments = [
        descriptor(q, rows, dtype),
        descriptor(k, config.BLOCK_N, dtype),
        descriptor(v, config.BLOCK_N, dtype),
        descriptor(o, rows, dtype),
        problem.seqlen_q,
        problem.seqlen_k,
        problem.n_heads,
        problem.n_heads // problem.n_heads_kv,
        -(-problem.seqlen_q // config.BLOCK_M),
        problem.batch * problem.n_heads,
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
        **COMPILE_OPTIONS,
    }
    return arguments, constants, problem.tiles(config.BLOCK_M)
