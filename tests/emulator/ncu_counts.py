"""What ncu counted on a GPU beside what the emulator counts:

    python -m tests.emulator.ncu_counts docs/results/raw/2026-11-20-h200-ncu-prog.csv

The file is the output of `ncu --csv` of docs/results/emulator-counts.md: kernels of `prog`, one
launch each of 16 heads of 1024 x 128. Exit codes: 0 equal, 1 not, 2 usage, 4 no kernel of `prog` or
none of the metrics in the file.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import Counts, LaunchOptions, Totals, compile_kernel
from flash_helpers.kernel_configs import FlashForwardKernelConfig, get_sm80_kernel_configs
from flash_lab.bench.ncu_read import read_csv

from .attention import Problem

PREFIX = "flash_fwd_sm80_fp16_d128_r64_c64_w4_"
HEADS = 16  # every head is the same work: the emulator runs one
BLOCKS = 256
SEQ_LEN = 1024
# The hardware counts some wavefronts more than the addresses explain, about one a block: see the
# page. All else must be equal.
MAX_EXCESS = 2 * BLOCKS

Classes = dict[str, Totals]
METRICS: dict[str, tuple[Callable[[Classes], int], int]] = {
    "sm__inst_executed_pipe_tensor_op_hmma.sum": (lambda c: c["mma"].executions, 0),
    "smsp__inst_executed_op_ldsm.sum": (lambda c: c["ldmatrix"].executions, 0),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": (
        lambda c: c["ldmatrix"].wavefronts + c["shared ld"].wavefronts,
        MAX_EXCESS,
    ),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": (
        lambda c: c["ldmatrix"].conflicts + c["shared ld"].conflicts,
        MAX_EXCESS,
    ),
}


@dataclass(frozen=True)
class Compared:
    kernel: str  # behind PREFIX
    metric: str
    emulator: int
    ncu: int
    max_excess: int

    @property
    def agrees(self) -> bool:
        return 0 <= self.ncu - self.emulator <= self.max_excess


def config_named(suffix: str) -> FlashForwardKernelConfig:
    return next(c for c in get_sm80_kernel_configs("prog") if c.kernel_name() == PREFIX + suffix)


def counts_of(config: FlashForwardKernelConfig, seq_len: int) -> Counts:
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    options = LaunchOptions(count=True)
    counts = Problem.make(config, seq_len, seed=1).run(kernel, options)[2].counts
    assert counts is not None
    return counts


@functools.cache
def classes_of(suffix: str) -> Classes:
    """Of one head."""
    return counts_of(config_named(suffix), SEQ_LEN).by_class()


def recorded(text: str) -> dict[str, dict[str, int]]:
    """By kernel of `prog`, then by metric, of ncu's output."""
    names = {config.kernel_name() for config in get_sm80_kernel_configs("prog")}
    return {
        launch.symbol.removeprefix(PREFIX): {
            name: int(str(value.value).replace(",", ""))
            for name, value in launch.values.items()
            if name in METRICS
        }
        for launch in read_csv(text).launches
        if launch.symbol in names
    }


def compare(kernel: str, measured: dict[str, int]) -> Iterator[Compared]:
    for metric, ncu in measured.items():
        count, max_excess = METRICS[metric]
        yield Compared(kernel, metric, HEADS * count(classes_of(kernel)), ncu, max_excess)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        measured = recorded(Path(arguments[0]).read_text())
    except (OSError, ValueError) as error:
        print(f"cannot read {arguments[0]}: {error}", file=sys.stderr)
        return 4
    rows = [row for kernel, values in measured.items() for row in compare(kernel, values)]
    for row in rows:
        verdict = "equal" if row.ncu == row.emulator else f"{row.ncu - row.emulator:+,}"
        verdict += "" if row.agrees else "  DIFFERENT"
        print(
            f"{row.kernel}: {row.metric}: {row.emulator:,} here, {row.ncu:,} on the GPU: {verdict}"
        )
    if not rows:
        wanted = ", ".join(METRICS)
        print(f"{arguments[0]} has no kernel of prog with any of {wanted}", file=sys.stderr)
        return 4
    return 0 if all(row.agrees for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
