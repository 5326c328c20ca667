"""One problem, all kernels and references: checked, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..config import FlashForwardKernelConfig
from ..peers import VERSIONS, ReferenceUnavailableError, find_peer
from ..reference import attention_reference
from ..tolerance import compare
from ..workload import Workload
from .clocks import ClockSampler
from .stats import Summary, summarize, tflops
from .timing import CudaTimer, Policy, interleaved

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Problem:
    workload: Workload
    configs: Sequence[FlashForwardKernelConfig]


@dataclass
class Row:
    name: str
    is_ours: bool
    status: str = "ok"  # ok, wrong, failed, skipped
    note: str = ""
    samples_ms: list[float] = field(default_factory=list)

    @property
    def summary(self) -> Summary:
        return summarize(self.samples_ms)


@dataclass
class Result:
    workload: Workload
    rows: list[Row]
    clocks: dict[str, float]
    clock_note: str

    def ranked(self) -> list[Row]:
        """Measured rows, fastest first."""
        return sorted(
            (row for row in self.rows if row.status == "ok"), key=lambda r: r.summary.median
        )

    def tflops(self, row: Row) -> float:
        """Of the two matmuls alone."""
        return tflops(self.workload.matmul_flop(), row.summary.median)

    def as_json(self) -> list[dict[str, object]]:
        shape = {
            "dtype": self.workload.dtype.name,
            "batch": self.workload.batch,
            "heads": self.workload.n_heads,
            "seq_len": self.workload.seq_len,
            "d_head": self.workload.d_head,
            "seed": self.workload.seed,
        }
        return [
            shape
            | self.clocks
            | {"name": row.name, "status": row.status, "note": row.note}
            | ({"matmul_tflops": round(self.tflops(row), 1)} if row.status == "ok" else {})
            | {"samples_ms": [round(ms, 5) for ms in row.samples_ms]}
            for row in self.rows
        ]


def run_problem(problem: Problem, policy: Policy) -> Result:
    """Checks every function once against fp32; only right ones are timed."""
    workload = problem.workload
    q, k, v = workload.generate("cuda")
    # The whole batch would cost more time than the sweep: two entries show every row's path.
    sample = min(2, workload.batch)
    reference, _ = attention_reference(q[:sample], k[:sample], v[:sample])
    rows: list[Row] = []
    functions: dict[str, Callable[[], object]] = {}
    for row, function in _candidates(problem, q, k, v):
        rows.append(row)
        if function is None:
            continue
        if _check(row, function, reference, sample):
            functions[row.name] = function
    with ClockSampler() as clocks:
        timer = CudaTimer(q.device, cold_l2=policy.cold_l2)
        bursts = interleaved(functions, policy, timer, workload.seed) if functions else {}
    for row in rows:
        row.samples_ms = [sample.ms for burst in bursts.get(row.name, []) for sample in burst]
    return Result(workload, rows, clocks.summary(), clocks.note)


def _candidates(
    problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> list[tuple[Row, Callable[[], torch.Tensor] | None]]:
    import torch

    import flash_attention

    found: list[tuple[Row, Callable[[], torch.Tensor] | None]] = []
    for version in VERSIONS:
        peer = find_peer(version, "cuda")
        found.append((Row(peer.name, is_ours=False, note=peer.note), partial(peer, q, k, v)))
    o = torch.empty_like(q)
    for config in problem.configs:
        name = config.short_form()
        if (config.dtype, config.d_head) != (problem.workload.dtype, problem.workload.d_head):
            continue
        if problem.workload.seq_len % config.B_r or problem.workload.seq_len % config.B_c:
            note = f"sequence length {problem.workload.seq_len} is not a multiple of its blocks"
            found.append((Row(name, is_ours=True, status="skipped", note=note), None))
            continue
        run = partial(flash_attention.forward, config, q, k, v, o)
        found.append((Row(name, is_ours=True), run))
    return found


def _check(
    row: Row, function: Callable[[], torch.Tensor], reference: torch.Tensor, sample: int
) -> bool:
    """Whether the output is right; otherwise the row says why not."""
    import torch

    try:
        output = function()
        torch.cuda.synchronize()
    except (ReferenceUnavailableError, ValueError, RuntimeError) as error:
        row.status, row.note = "failed", str(error).splitlines()[0]
        return False
    outcome = compare(output[:sample], reference)
    if not outcome.passed:
        row.status, row.note = "wrong", outcome.describe()
    return outcome.passed
