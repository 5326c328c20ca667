"""Running kernels and references on one problem, and checking every output.

Every output is filled with NaN before its run, compared with the fp32 reference, and compared
bit by bit with the first output of the same kernel; the inputs must come back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from flash_helpers.base.dtypes import DType
from flash_helpers.base.lazy import torch
from flash_helpers.check.judge import Judge
from flash_helpers.check.peers import find_peer
from flash_helpers.check.tolerance import Comparison, bitwise_equal
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.problem import AttentionProblem

Forward: TypeAlias = "Callable[..., torch.Tensor | None]"
# Runs once on (q, k, v, o), writing to o if it can; returns the output.
Attention: TypeAlias = "Callable[..., torch.Tensor]"

PASS, FAIL, NOT_RUN = "pass", "FAIL", "NOT RUN"


@dataclass(frozen=True)
class Options:
    """The problem and how often each kernel runs on it. `device` is a torch device type: the
    emulator runs whatever lies on the `cpu`."""

    device: str
    batch: int
    n_heads: int
    seq_len: int
    seed: int
    n_runs: int
    causal: bool = False

    def problem(self, dtype: DType, d_head: int) -> AttentionProblem:
        return AttentionProblem.self_attention(
            dtype, self.batch, self.seq_len, self.n_heads, d_head, causal=self.causal
        )


@dataclass(frozen=True)
class Row:
    """The outcome for one kernel or reference. `problem` says why it was not run, or what is
    wrong beyond the numbers."""

    label: str
    dtype: DType
    d_head: int
    config: KernelConfig | None = None  # None for a reference
    comparison: Comparison | None = None  # of the first run
    repeats_equal: bool | None = None  # None: it ran once
    problem: str = ""
    broke_a_rule: bool = (
        False  # the emulator stopped the kernel: that is a result, not a lack of one
    )
    note: str = ""
    variant: Variant | None = None  # of the configuration's kernels, the one that is launched

    @property
    def symbol(self) -> str:
        """Of the kernel that is launched; empty for a reference."""
        if self.config is None:
            return ""
        return self.config.symbol(self.variant or self.config.first_variant())

    @property
    def status(self) -> str:
        if self.broke_a_rule:
            return FAIL
        if self.comparison is None:
            return NOT_RUN
        wrong = not self.comparison.passed or self.repeats_equal is False or self.problem
        return FAIL if wrong else PASS

    def explanation(self) -> str:
        """Why the status is not PASS, in a sentence."""
        parts = [self.problem] if self.problem else []
        if self.repeats_equal is False:
            parts.append("repeated runs differ bitwise")
        if self.comparison is not None and not self.comparison.passed:
            parts.append(self.comparison.describe())
        return "; ".join(parts)


@dataclass
class Session:
    """Runs rows of one table. Inputs and references are made once per dtype and head size."""

    options: Options
    forward: Forward
    _judges: dict[tuple[DType, int], Judge] = field(default_factory=dict)
    _lost: str = ""  # why nothing more can run on this device

    def run(self, configs: Sequence[KernelConfig], references: Iterable[str]) -> Iterator[Row]:
        """The references ('v2', 'v3') for each dtype and head size in use, then the kernels."""
        kinds = sorted({(config.dtype, config.d_head) for config in configs})
        for version in references:
            for dtype, d_head in kinds:
                yield self.run_reference(version, dtype, d_head)
        for config in configs:
            yield self.run_kernel(config)

    def run_kernel(self, config: KernelConfig) -> Row:
        def attention(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor
        ) -> torch.Tensor:
            options = {"causal": True} if self.options.causal else {}
            returned = self.forward(config, q, k, v, o, **options)
            if returned is not None and returned.data_ptr() != o.data_ptr():
                raise RuntimeError("forward() did not write to the output it was given")
            return o

        problem = (self.options.seq_len, self.options.seq_len, self.options.causal)
        needed = config.variant_for(*problem)
        variant = needed if needed in config.variants() else config.first_variant()
        row = Row(config.short_form(), config.dtype, config.d_head, config, variant=variant)
        return self._run(row, attention)

    def run_reference(self, version: str, dtype: DType, d_head: int) -> Row:
        peer = find_peer(version, self.options.device, self.options.causal)
        row = Row(f"{version}: {peer.name} ({dtype.name}, {d_head})", dtype, d_head, note=peer.note)
        return self._run(row, lambda q, k, v, o: peer(q, k, v))

    def _run(self, row: Row, attention: Attention) -> Row:
        if self._lost:
            return replace(row, problem=self._lost)
        try:
            return self._checked(row, attention)
        except Exception as error:  # one kernel that cannot run must not hide the others
            try:  # after some CUDA errors nothing runs any more: not every row is to blame
                self.synchronize()
            except Exception as lost:
                self._lost = f"the device is lost since an earlier row: {describe_error(lost)}"
            from flash_helpers.emulator.errors import KernelError

            # Found in the kernel itself (an access out of bounds, a deadlock, ...), as opposed to a
            # missing compiler or kernel.
            broke_a_rule = isinstance(error, KernelError)
            return replace(row, problem=describe_error(error), broke_a_rule=broke_a_rule)

    def _checked(self, row: Row, attention: Attention) -> Row:
        judge = self._judge(row.dtype, row.d_head)
        first: torch.Tensor | None = None
        repeats_equal = True
        for _ in range(self.options.n_runs):
            o = attention(*judge.tensors, judge.poisoned())
            self.synchronize()
            if first is None:
                first = o
            else:
                repeats_equal = bitwise_equal(first, o) and repeats_equal
        if first is None:
            raise ValueError(f"n_runs must be at least 1, got {self.options.n_runs}")
        return replace(
            row,
            comparison=judge.compare(first),
            repeats_equal=repeats_equal if self.options.n_runs > 1 else None,
            problem=judge.restore(),
        )

    def _judge(self, dtype: DType, d_head: int) -> Judge:
        key = (dtype, d_head)
        if key not in self._judges:
            problem = self.options.problem(dtype, d_head)
            inputs = problem.tensors(self.options.seed, self.options.device)
            self._judges[key] = Judge(inputs, causal=problem.causal)
        return self._judges[key]

    def synchronize(self) -> None:
        if self.options.device == "cuda":
            torch.cuda.synchronize()


def describe_error(error: BaseException) -> str:
    """One line: the type and the message."""
    message = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {message}"
