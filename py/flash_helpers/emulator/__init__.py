"""Runs CUDA kernels on the CPU from the PTX that a compiler emitted. See README.md here."""

from .counters import count_tables
from .counters.counts import Counts, InstructionCounts, Totals
from .counters.counts import from_csv as counts_from_csv
from .counters.counts import to_csv as counts_to_csv
from .detector.races import Race
from .door.launch import (
    EmulatedKernel,
    LaunchOptions,
    LaunchReport,
    MemoryRange,
    compile_kernel,
    compile_kernels,
    memory_range_of,
)
from .door.schedules import ScheduleError, compare_schedules, schedules
from .door.triton_launch import Descriptor, TritonKernel, launch_triton
from .errors import (
    DeadlockError,
    DivergentCollectiveError,
    EarlyAccessError,
    EmulatorBuildError,
    EmulatorError,
    EndlessLoopError,
    InvalidLaunchError,
    InvalidOperandError,
    KernelError,
    KernelLocation,
    MbarrierError,
    MisalignedAccessError,
    OutOfBoundsError,
    PendingAsyncCopyError,
    PtxSyntaxError,
    RaceError,
    ReadOnlyMemoryError,
    TensorMapError,
    TrapError,
    UnsupportedPtxError,
    WgmmaError,
)
from .sm90.tensor_map import pack_tensor_map

__all__ = [
    "Counts",
    "DeadlockError",
    "Descriptor",
    "DivergentCollectiveError",
    "EarlyAccessError",
    "EmulatedKernel",
    "EmulatorBuildError",
    "EmulatorError",
    "EndlessLoopError",
    "InstructionCounts",
    "InvalidLaunchError",
    "InvalidOperandError",
    "KernelError",
    "KernelLocation",
    "LaunchOptions",
    "LaunchReport",
    "MbarrierError",
    "MemoryRange",
    "MisalignedAccessError",
    "OutOfBoundsError",
    "PendingAsyncCopyError",
    "PtxSyntaxError",
    "Race",
    "RaceError",
    "ReadOnlyMemoryError",
    "ScheduleError",
    "TensorMapError",
    "Totals",
    "TrapError",
    "TritonKernel",
    "UnsupportedPtxError",
    "WgmmaError",
    "compare_schedules",
    "compile_kernel",
    "compile_kernels",
    "count_tables",
    "counts_from_csv",
    "counts_to_csv",
    "launch_triton",
    "memory_range_of",
    "pack_tensor_map",
    "schedules",
]
