"""The race detector's findings (csrc/emulator/detector/race.h) in words."""

from dataclasses import dataclass

from ..door.source_lines import SourceLocation
from ..sm90.remedies import IN_CLUSTER, REMEDIES

KINDS = (  # RaceKind in race.h
    "read-after-write",
    "write-after-read",
    "write-after-write",
    "read of an in-flight cp.async",
    "write to an in-flight cp.async",
    "read of bytes never written",
    "read of a bulk load not waited for",
    "write to a bulk load not waited for",
    "write to a source of wgmma in flight",
    "write to the source of a bulk store in flight",
    "write not fenced for an asynchronous unit",
    "mbarrier used before its initialisation is seen",
    "mbarrier used by a bulk load, without a fence after its initialisation",
    "write to the source of a copy to another block",
    "use of a block's shared memory that may have ended",
    "read of what a bulk store in flight writes",
    "write to what a bulk store in flight writes",
    "write to the source of a bulk load in flight",
)
IN_FLIGHT = KINDS[3:5]
UNWRITTEN = KINDS[5]


@dataclass(frozen=True)
class RaceAccess:
    """One of the two accesses: who, where in the source, and the instruction."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    warp: int
    lane: int
    source: SourceLocation
    instruction: str
    barrier: SourceLocation | None  # the last one that the thread passed
    passed_since: bool  # first access only: it passed that barrier afterwards

    @property
    def place(self) -> object:
        """The same in all iterations of an unrolled loop: the source line and what it was inlined
        into at the outermost, or the PTX line where there is none."""
        frames = self.source.frames
        return (frames[0], frames[-2:]) if frames else self.source.ptx_line

    def __str__(self) -> str:
        who = f"block {self.block}, thread {self.thread} (warp {self.warp}, lane {self.lane})"
        return f"{who}: {self.instruction}\n      at {self.source}"


@dataclass(frozen=True)
class Race:
    """Accesses to the same bytes that nothing orders: one example, and how often the same two
    places in the program met like this."""

    kind: str
    memory: str  # "shared memory" or "global memory"
    name: str  # of the variable or registered range
    first_byte: int
    n_bytes: int
    first: RaceAccess | None  # none for reads of bytes never written
    second: RaceAccess
    count: int

    def __str__(self) -> str:
        lines = [f"{self.kind}, {self._bytes()}, {self.count} time" + "s" * (self.count > 1)]
        if self.first is not None:
            lines.append(f"  1. {self.first}")
        lines.append(f"  {2 if self.first else 1}. {self.second}")
        return "\n  ".join([*lines, f"  {self.remedy()}"])

    def _bytes(self) -> str:
        return f"{self.memory} {self.name}, bytes {self.first_byte} to {self.last_byte}"

    @property
    def last_byte(self) -> int:
        return self.first_byte + self.n_bytes - 1

    def remedy(self) -> str:
        """What would order the two, and what does not."""
        first, second = self.first, self.second
        far = first is not None and first.block != second.block
        if far and self.memory == "global memory":
            return "nothing orders blocks within a launch: use atomics, or two launches"
        if self.kind in REMEDIES:
            return REMEDIES[self.kind]
        if first is None:
            return "no thread or copy of the block wrote these bytes before"
        if far:
            return IN_CLUSTER
        same_warp = first.warp == second.warp
        barrier = "bar.warp.sync (__syncwarp)" if same_warp else "bar.sync (__syncthreads)"
        if self.kind in IN_FLIGHT:
            wait = f"missing between the two: cp.async.wait_group by thread {first.thread}"
            if first.passed_since:  # a barrier is there, but orders nothing yet
                return f"{wait}, before the barrier at {first.barrier}"
            return wait if first.thread == second.thread else f"{wait}, then {barrier}"
        missing = f"missing between the two: {barrier}; "
        if first.passed_since:
            return missing + (
                f"thread {first.thread} has since passed the barrier at {first.barrier}, "
                f"which did not hold thread {second.thread} back"
            )
        if second.barrier is None:
            return missing + "no barrier was passed before"
        return missing + f"the last barrier before is at {second.barrier}"
