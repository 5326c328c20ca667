"""What can go wrong: reading PTX, compiling it, launching it, and the rules a kernel can break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .detector.races import Race

MAX_RACES_SHOWN = 8


class EmulatorError(RuntimeError):
    """Base of every error that the emulator reports."""


class PtxSyntaxError(EmulatorError):
    """The PTX text could not be read."""


class UnsupportedPtxError(EmulatorError):
    """The PTX holds instructions the translator does not know; the message lists each."""


class EmulatorBuildError(EmulatorError):
    """No usable C++ compiler, or it failed."""


class InvalidLaunchError(EmulatorError):
    """Launch arguments that do not fit the kernel."""


@dataclass(frozen=True)
class KernelLocation:
    """Where a rule was broken."""

    kernel: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    source: str  # "forward.cuh:120 (inlined at kernel.cu:8), PTX line 431"

    def __str__(self) -> str:
        return f"kernel {self.kernel}, block {self.block}, thread {self.thread}, at {self.source}"


class KernelError(EmulatorError):
    """A kernel broke a rule while it ran."""

    def __init__(self, message: str, location: KernelLocation) -> None:
        super().__init__(f"{message}\n  {location}")
        self.message = message
        self.location = location


class OutOfBoundsError(KernelError):
    """An access outside shared, local or registered global memory."""


class MisalignedAccessError(KernelError):
    """An address that is not a multiple of the access's size."""


class ReadOnlyMemoryError(KernelError):
    """A write to memory that was registered as read-only."""


class DivergentCollectiveError(KernelError):
    """Lanes that must execute one collective together are at different ones, or gone."""


class DeadlockError(KernelError):
    """No thread of a block can go on."""


class PendingAsyncCopyError(KernelError):
    """A thread exits while its cp.async copies are in flight."""


class EndlessLoopError(KernelError):
    """A thread took more backward branches than the launch allows."""


class RaceError(KernelError):
    """Accesses to the same memory that nothing orders, or reads of what was never written. The
    launch ran to its end; `races` are the distinct pairs of places, `total` counts accesses."""

    def __init__(self, races: Sequence[Race], total: int, location: KernelLocation) -> None:
        shown = "\n".join(str(race) for race in races[:MAX_RACES_SHOWN])
        more = len(races) - MAX_RACES_SHOWN
        super().__init__(
            f"{total} racing accesses between {len(races)} pairs of places\n{shown}"
            + (f"\nand {more} more pairs" if more > 0 else ""),
            location,
        )
        self.races = tuple(races)
        self.total = total


class TrapError(KernelError):
    """The kernel executed `trap`."""


class InvalidOperandError(KernelError):
    """An operand value that the instruction does not allow."""


class MbarrierError(KernelError):
    """An mbarrier that does not exist, or whose arrivals or bytes do not fit."""


class WgmmaError(KernelError):
    """Registers of a warpgroup matmul touched too early, or a matmul that nobody waits for."""


class TensorMapError(KernelError):
    """A bulk copy through something other than a tensor map of the emulator, or of another rank."""


class EarlyAccessError(KernelError):
    """An access to global memory by a thread whose griddepcontrol.wait is still ahead."""


# ErrorKind in csrc/emulator/runtime/errors.h, in its order.
KERNEL_ERRORS: dict[int, type[KernelError]] = {
    1: OutOfBoundsError,
    2: MisalignedAccessError,
    3: ReadOnlyMemoryError,
    4: DivergentCollectiveError,
    5: DeadlockError,
    6: PendingAsyncCopyError,
    7: EndlessLoopError,
    8: TrapError,
    10: InvalidOperandError,
    11: MbarrierError,
    12: WgmmaError,
    13: TensorMapError,
    14: EarlyAccessError,
}
INVALID_LAUNCH = 9
