"""What the Triton and Gluon attention kernels have in common: problems, checks, calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from ..checks.arguments import (
    check_layout,
    check_lengths,
    check_operands,
    check_output,
)
from ..checks.eager import require_eager
from ..checks.memory import check_alignment
from ..checks.scale import scale_or_default, with_positive_scale
from .offline import Compiled, compile_op
from .op import C, Op, StandInTensor, Work
from .tuning import Tuned, best_for
from .versions import require_triton

LOG2_E = math.log2(math.e)
# K and V of the heads that run abreast (causal) shall stay in the L2 cache.
_L2_SHARE_BYTES = 24 * 2**20
_MAX_SECTION = 32
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class AttentionCall:
    """A problem as the kernels are launched for it."""

    problem: AttentionProblem
    softmax_scale: float

    @classmethod
    def of_code(cls, d_head: int, causal: bool, dtype: DType) -> AttentionCall:
        """One of those that all have the same code: Triton specialises for none of its sizes."""
        problem = AttentionProblem.self_attention(dtype, 2, 1000, 4, d_head, causal=causal)
        return cls(problem, d_head**-0.5)

    @property
    def d_head(self) -> int:
        return self.problem.d_head

    @property
    def causal(self) -> bool:
        return self.problem.causal

    @property
    def torch_name(self) -> str:  # of the element type
        return str(self.problem.dtype.to_torch_dtype()).removeprefix("torch.")

    def sizes(self, block_m: int) -> list[Any]:
        """The kernels' numbers, in order."""
        p = self.problem
        return [
            p.seqlen_q, p.seqlen_k, p.n_heads, p.n_heads // p.n_kv_heads,
            -(-p.seqlen_q // block_m), p.batch * p.n_heads, heads_abreast(p),
            self.softmax_scale * LOG2_E,
        ]  # fmt: skip

    def tiles(self, block_m: int) -> int:
        """Tiles of `block_m` query rows in all heads."""
        return -(-self.problem.seqlen_q // block_m) * self.problem.n_heads * self.problem.batch


def heads_abreast(problem: AttentionProblem) -> int:
    """How many heads a section of the causal order holds: their K and V stay in the L2 cache."""
    kv_bytes = max(1, problem.seqlen_k) * problem.d_head * 4
    group = problem.n_heads // problem.n_kv_heads
    heads = max(1, _L2_SHARE_BYTES // kv_bytes) * group
    return min(heads, max(_MAX_SECTION, group))


def check_call(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, causal: bool,
    softmax_scale: float | None, head_dims: tuple[int, ...], device_type: str = "cuda",
) -> tuple[AttentionCall, torch.Tensor]:  # fmt: skip
    """(the sizes, the output tensor) of a call. Raises TypeError or ValueError, naming the
    argument, what it is and what is allowed; NotImplementedError where the call is recorded."""
    require_eager()
    check_operands(q, k, v, softmax_scale, causal)
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"q has dtype {q.dtype}: allowed are torch.float16 and torch.bfloat16")
    if q.shape[3] not in head_dims:
        allowed = ", ".join(map(str, head_dims))
        raise ValueError(f"q has head dimension {q.shape[3]}: allowed are {allowed}")
    if v.shape[3] != q.shape[3]:
        raise ValueError(f"v has head dimension {v.shape[3]}: expected that of q, {q.shape[3]}")
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
    problem = AttentionProblem(
        DType.from_torch_dtype(q.dtype), batch, seqlen_q, k.shape[1], n_heads, k.shape[2], d_head,
        causal=causal,
    )  # fmt: skip
    call = AttentionCall(problem, scale_or_default(softmax_scale, d_head))
    check_lengths(seqlen_q, problem.seqlen_k)
    if call.tiles(64) > _MAX_INT32:
        raise ValueError(
            f"{batch} x {n_heads} heads of {seqlen_q} rows: at most {_MAX_INT32} tiles of 64 rows"
            " are possible"
        )
    return call, out


class AttentionOp(Op[C, AttentionCall]):
    """An attention kernel. Its tensors are q, k, v and the output."""

    head_dims: tuple[int, ...]
    written = (3,)
    needs_keys = False  # cannot be launched where K and V have no rows

    def stand_ins(self, call: AttentionCall) -> Sequence[StandInTensor]:
        p = call.problem
        q = StandInTensor((p.batch, p.seqlen_q, p.n_heads, p.d_head), call.torch_name)
        k = StandInTensor((p.batch, p.seqlen_k, p.n_kv_heads, p.d_head), call.torch_name)
        return q, k, k, q

    def key(self, call: AttentionCall) -> dict[str, Any]:
        return asdict(call.problem) | {"dtype": call.torch_name}

    def work(self, call: AttentionCall) -> Work:
        """The two products (causal: half of them); Q, K, V read once and O written once."""
        return Work(call.problem.matmul_flop(), call.problem.n_bytes())

    def code(self, config: C, call: AttentionCall) -> tuple[C, AttentionCall]:
        return config, AttentionCall.of_code(call.d_head, call.causal, call.problem.dtype)

    def compile(
        self, config: C, dtype: str, d_head: int, causal: bool, architecture: int | None = None
    ) -> Compiled:
        """offline.compile_op for problems like these. `dtype` is fp16 or bf16."""
        if dtype not in ("fp16", "bf16"):
            raise ValueError(f"dtype {dtype}: allowed are fp16 and bf16")
        call = AttentionCall.of_code(d_head, causal, DType.from_string(dtype))
        return compile_op(self, config, call, architecture=architecture)

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None,
        causal: bool, softmax_scale: float | None, config: C | None,
        run: Callable[[C, AttentionCall, Sequence[torch.Tensor]], None] | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """The output; by `run` for tensors on the CPU, else by Op.launch. Raises as the public
        functions say, before the launch."""
        device = "cpu" if run else "cuda"
        q, softmax_scale = with_positive_scale(q, softmax_scale)
        call, out = check_call(q, k, v, out, causal, softmax_scale, self.head_dims, device)
        config = self.checked(config, call)
        require_triton()
        if not run:
            self.check_device(q.device)
        if self.needs_keys and call.problem.seqlen_k == 0:
            return out.zero_()
        (run or self.launch)(config, call, (q, k, v, out))
        return out

    def best_config(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, measure_now: bool
    ) -> Tuned[C]:
        """The fastest configuration; see tuning.best_for."""
        call, out = check_call(q, k, v, None, causal, None, self.head_dims)
        self.checked(None, call)
        require_triton()
        self.check_device(q.device)
        if self.needs_keys and call.problem.seqlen_k == 0:
            shape = tuple(k.shape)
            raise ValueError(f"k has shape {shape}: without keys there is nothing to measure")
        return best_for(self, call, (q, k, v, out), measure_now=measure_now)
