"""What the Triton and Gluon kernels have in common: the checks before a launch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..checks.arguments import (
    check_layout,
    check_lengths,
    check_operands,
    check_output,
    scale_or_default,
)
from ..checks.eager import require_eager
from ..checks.memory import check_alignment

# Options of every compilation. Triton's own default comes from the environment, and shall change.
COMPILE_OPTIONS = {"enable_fp_fusion": True}
DTYPES = (torch.float16, torch.bfloat16)
LOG2_E = math.log2(math.e)
# K and V of the heads that run abreast (causal) shall stay in the L2 cache.
_L2_SHARE_BYTES = 24 * 2**20
_MAX_SECTION = 32
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Problem:
    """The sizes of one call."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    n_heads: int
    n_heads_kv: int
    d_head: int
    causal: bool
    softmax_scale: float

    def tiles(self, block_m: int) -> int:
        """Tiles of `block_m` query rows in all heads."""
        return -(-self.seqlen_q // block_m) * self.n_heads * self.batch


def heads_abreast(problem: Problem) -> int:
    """How many heads a section of the causal order holds: their K and V stay in the L2 cache."""
    kv_bytes = max(1, problem.seqlen_k) * problem.d_head * 4
    group = problem.n_heads // problem.n_heads_kv
    heads = max(1, _L2_SHARE_BYTES // kv_bytes) * group
    return min(heads, max(_MAX_SECTION, group))


def check_call(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    causal: bool,
    softmax_scale: float | None,
    head_dims: tuple[int, ...],
    device_type: str = "cuda",
) -> tuple[Problem, torch.Tensor]:
    """(the sizes, the output tensor) of a call. Raises TypeError or ValueError, naming the
    argument, what it is and what is allowed; NotImplementedError where the call is recorded."""
    require_eager()
    check_operands(q, k, v, softmax_scale, causal)
    if q.dtype not in DTYPES:
        raise ValueError(f"q has dtype {q.dtype}: allowed are torch.float16 and torch.bfloat16")
    if q.shape[3] not in head_dims:
        allowed = ", ".join(map(str, head_dims))
        raise ValueError(f"q has head dimension {q.shape[3]}: allowed are {allowed}")
    inputs = {"q": q, "k": k, "v": v}
    for name, tensor in inputs.items():
        check_layout(name, tensor)
    if q.device.type != device_type:
        raise ValueError(
            f"q is on {q.device}: Triton kernels run on CUDA devices only"
            if device_type == "cuda"
            else f"q is on {q.device}: the emulator runs on the CPU"
        )
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    else:
        check_output(q, out, inputs)
    check_alignment(inputs | {"out": out})
    batch, seqlen_q, n_heads, d_head = q.shape
    problem = Problem(
        batch=batch,
        seqlen_q=seqlen_q,
        seqlen_k=k.shape[1],
        n_heads=n_heads,
        n_heads_kv=k.shape[2],
        d_head=d_head,
        causal=causal,
        softmax_scale=scale_or_default(softmax_scale, d_head),
    )
    check_lengths(seqlen_q, problem.seqlen_k)
    if problem.tiles(64) > _MAX_INT32:
        raise ValueError(
            f"{batch} x {n_heads} heads of {seqlen_q} rows: at most {_MAX_INT32} tiles of 64 rows "
            "are possible"
        )
    return problem, out
