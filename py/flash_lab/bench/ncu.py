"""Profiles kernels and references on one problem after the other, with Nsight Compute.

For every problem run_kernels.py runs under ncu: it checks each output, ncu counts. A kernel that
loses the device takes the later ones with it; those get another run without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flash_helpers.base.dtypes import DType
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.problem import AttentionProblem

from ..correctness.selection import Skipped, partition
from .ncu_classify import OURS, V2, V3
from .ncu_messages import advise, application_code, counters_are_refused, tail
from .ncu_rows import INCOMPLETE, WRONG, Assembly, NcuRow, Verdicts, read_verdicts
from .ncu_run import Ncu, NcuError, NcuTimeoutError, Run, profile, target_command

DEVICE_LOST = "the device is lost since an earlier row"  # what runner.py writes
_REFERENCE_OPTIONS = {V2: "--ref", V3: "--ref_v3"}


@dataclass(frozen=True)
class NcuCase:
    """What one run of ncu is about. `configs`: those that fit the shape, shown or not."""

    seq_len: int
    d_head: int
    batch: int
    n_heads: int
    seed: int
    n_runs: int
    providers: tuple[str, ...]
    configs: tuple[KernelConfig, ...]
    skipped: tuple[Skipped, ...] = ()

    @classmethod
    def of(
        cls, configs: Sequence[KernelConfig], seq_len: int, d_head: int, batch: int,
        n_heads: int, seed: int, n_runs: int, providers: Sequence[str],
    ) -> NcuCase:  # fmt: skip
        kept, skipped = partition(configs, seq_len, d_head)
        if OURS not in providers:  # run_kernels.py runs a reference for each dtype of a kernel
            kept = list({config.dtype: config for config in kept}.values())
        return cls(
            seq_len, d_head, batch, n_heads, seed, n_runs, tuple(providers), tuple(kept),
            tuple(skipped),
        )  # fmt: skip

    def __str__(self) -> str:
        shape = f"batch {self.batch}, heads {self.n_heads}, seq {self.seq_len}, d {self.d_head}"
        return f"{shape}, {self.n_runs} run(s), seed {self.seed}"

    @property
    def dtypes(self) -> list[DType]:
        return sorted({config.dtype for config in self.configs}, key=lambda dtype: dtype.name)

    def references(self) -> list[str]:
        return [name for name in _REFERENCE_OPTIONS if name in self.providers]

    def problem(self, dtype: DType) -> AttentionProblem:
        return AttentionProblem.self_attention(
            dtype, self.batch, self.seq_len, self.n_heads, self.d_head
        )

    def arguments(self, configs: Sequence[KernelConfig], references: Sequence[str]) -> list[str]:
        """Of run_kernels.py. Nothing is left to its defaults: the FLOP counts depend on it."""
        return [
            str(self.seq_len), str(self.d_head), "--device", "cuda", "--csv",
            "--n_runs", str(self.n_runs), "--batch", str(self.batch),
            "--heads", str(self.n_heads), "--seed", str(self.seed),
            *(_REFERENCE_OPTIONS[name] for name in references),
            "--kernels", *(config.kernel_name() for config in configs),
        ]  # fmt: skip


@dataclass
class Result:
    """`troubles`: why rows are missing; `unknown`: profiled symbols that nobody claims."""

    case: NcuCase
    rows: list[NcuRow] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def reference_for(self, dtype: DType) -> NcuRow | None:
        """What the ratios refer to: FlashAttention-2 if there, else the other reference."""
        for provider in (V2, V3):
            for row in self.rows:
                if row.provider == provider and row.dtype is dtype and row.is_measured:
                    return row
        return None


def measure(ncu: Ncu, case: NcuCase, say: Callable[[str], None]) -> Result:
    """Never raises for what one problem suffers; NcuError means that none can be measured."""
    result = Result(case)
    pending, references = list(case.configs), case.references()
    if not pending:
        result.troubles.append("no selected kernel fits this problem: see the skipped ones")
    while pending:
        say(f"{case}: {len(pending)} kernel(s) and {len(references)} reference(s) under ncu")
        command = target_command(case.arguments(pending, references))
        try:
            run = profile(ncu, command)
        except NcuTimeoutError as error:
            names = "" if len(pending) > 3 else " with " + ", ".join(map(str, pending))
            result.troubles.append(f"{error}{names}; does a kernel hang? Its rows are lost")
            break
        verdicts = read_verdicts(run.text)
        said = {config: verdicts.get(config.kernel_name()) for config in pending}
        lost = [c for c, verdict in said.items() if verdict and DEVICE_LOST in verdict.explanation]
        _collect(result, ncu, run, verdicts, pending, lost, references)
        if not run.reading.launches and counters_are_refused(run.text):
            raise NcuError("\n".join(result.troubles))
        pending, references = lost if len(lost) < len(pending) else [], []
    return result


def _collect(
    result: Result, ncu: Ncu, run: Run, verdicts: Verdicts,
    configs: Sequence[KernelConfig], lost: Sequence[KernelConfig],
    references: Sequence[str],
) -> None:  # fmt: skip
    """Adds the rows of one run. Those that get another run are left out."""
    case, launches = result.case, run.reading.launches
    assembly = Assembly.of(launches, ncu.metrics, case.n_runs, verdicts, set(case.dtypes))
    rows = [
        assembly.reference_row(name, dtype, case.problem(dtype))
        for name in references
        for dtype in case.dtypes
    ]
    if OURS in case.providers:
        retried = set(lost) if len(lost) < len(configs) else set()
        rows += [
            assembly.our_row(config, case.problem(config.dtype))
            for config in configs
            if config not in retried
        ]
    result.rows += rows
    result.unknown += assembly.unknown()
    result.troubles += run.reading.problems[:10]
    if not launches or not all(row.is_measured for row in rows):
        result.troubles += _explain(run, verdicts)


def _explain(run: Run, verdicts: Verdicts) -> list[str]:
    """Why there is not a row for everything, with what to do."""
    found = [run.read_error] if run.read_error else []
    found += advise(run.text)
    if not verdicts:
        code = application_code(run.text)
        ended = f"with code {code}" if code else f"(ncu: {run.code})"
        found.append(f"run_kernels.py ended {ended} before it reported; the end of its output:")
        found.append(tail(run.text))
    elif not run.reading.launches and not found:
        found.append(f"ncu (exit code {run.code}) printed no table; the end of its output:")
        found.append(tail(run.text))
    return found


def exit_code(results: Sequence[Result]) -> int:
    """As run_kernels.py: a wrong result outranks a missing one, and no data a part of them."""
    rows = [row for result in results for row in result.rows]
    if any(row.status == WRONG for row in rows):
        return EXIT_FAILED
    wanted = OURS if any(OURS in result.case.providers for result in results) else None
    if not any(row.is_measured and wanted in (None, row.provider) for row in rows):
        return EXIT_NO_DATA
    whole = all(result.rows and not result.troubles for result in results)
    fine = all(row.is_measured and row.status != INCOMPLETE for row in rows)
    return EXIT_OK if whole and fine else EXIT_PARTIAL
