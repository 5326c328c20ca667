"""Compiled kernels and their launches."""

import ctypes
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ..counters.count_launch import Counter, CountingVariant
from ..counters.counts import Counts
from ..detector.formatter import RaceFormatter
from ..detector.races import Race
from ..errors import (
    INVALID_LAUNCH,
    KERNEL_ERRORS,
    InvalidLaunchError,
    KernelError,
    KernelLocation,
    RaceError,
)
from . import abi
from .compile import Runtime, runtime
from .shape import Dim3, check_shape
from .source_lines import SourceLines

PARAMETER_ALIGNMENT = 128

LaneOrder = Literal["forward", "reverse", "random"]
# What the race detector does with its findings: RaceError, LaunchReport.races, or it does not run.
RaceMode = Literal["error", "report", "off"]
RACES_VARIABLE = "FLASH_ATTENTION_EMULATOR_RACES"


@dataclass(frozen=True)
class MemoryRange:
    """Memory that a kernel may access: as the kernel's addresses are host addresses, its own."""

    address: int
    n_bytes: int
    writable: bool
    name: str


@dataclass(frozen=True)
class LaunchOptions:
    """How to execute; results do not depend on any of it unless the kernel has a race."""

    workers: int | None = None  # OS threads; None: one per processor
    lane_order: LaneOrder = "forward"
    seed: int = 0  # of lane_order="random"
    early_loads: bool = False  # bulk loads land when they are issued, else as late as they may
    # For kernels whose sums are bitwise the same in every run: bulk reductions of the same place
    # race unless they are ordered. Else they may come in any order.
    ordered_sums: bool = False
    # Warps of a warpgroup wait for each other where they commit matmuls, as on an H200, where none
    # gets past a wgmma before all four have come. Else each goes on by itself, further ahead.
    warps_meet: bool = False
    races: RaceMode | None = None  # None: $FLASH_ATTENTION_EMULATOR_RACES, or "error"
    max_backward_branches: int = 1 << 26  # per thread
    count: bool = False  # instructions, bank conflicts and sectors, into LaunchReport.counts


@dataclass(frozen=True)
class LaunchReport:
    """What ran: collectives are counted once per warp (barriers once per block)."""

    blocks: int
    threads: int
    workers: int
    collectives: dict[str, int]
    mma_instructions: int
    async_copies: int
    bulk_loads: int  # instructions, each of one thread
    bulk_stores: int
    global_loads: int  # ld.global of threads
    global_stores: int
    races: tuple[Race, ...] = ()  # distinct pairs of places
    racing_accesses: int = 0
    counts: Counts | None = None


def memory_range_of(array: Any, name: str, writable: bool | None = None) -> MemoryRange:
    """The memory of a contiguous numpy array (anything with __array_interface__)."""
    interface = array.__array_interface__
    if interface.get("strides") is not None:
        raise InvalidLaunchError(f"array {name} is not contiguous: strides {interface['strides']}")
    address, read_only = interface["data"]
    return MemoryRange(address, array.nbytes, not read_only if writable is None else writable, name)


class EmulatedKernel:
    """One entry of a PTX module, ready to launch. Safe to launch from several threads."""

    def __init__(self, ptx: str, entry: str, runtime_: Runtime) -> None:
        self.name = entry
        self._ptx = ptx
        self._runtime = runtime_
        self._library = runtime_.compile_kernel(ptx, entry)
        self._info = abi.KernelInfo.in_dll(self._library, "kernel_info")
        self._counting: CountingVariant | None = None

    @property
    def parameter_sizes(self) -> tuple[int, ...]:
        return tuple(self._info.parameters[i].bytes for i in range(self._info.n_parameters))

    @property
    def static_shared_bytes(self) -> int:
        return int(self._info.static_shared_bytes)

    def launch(
        self,
        grid: Dim3, block: Dim3, shared_bytes: int, params: Sequence[bytes],
        memory: Sequence[MemoryRange], *,
        cluster: int | None = None, options: LaunchOptions | None = None,
    ) -> LaunchReport:  # fmt: skip
        """Runs the whole grid, in clusters of so many blocks along x (None: as many as the kernel
        declares, or one); a KernelError names kernel, block, thread and source line."""
        options = options or LaunchOptions()
        cluster = self._info.cluster or 1 if cluster is None else cluster
        check_shape(self.name, self._info, grid, block, shared_bytes, cluster)
        packed = self._pack_parameters(params)
        names, ranges = self._ranges(memory, packed)
        talk = self._info.uses_global_atomics or self._info.orders_blocks  # in a fixed order
        workers = 1 if talk else options.workers or os.cpu_count() or 1
        mode = _race_mode(options)
        counter = Counter(self._counting_variant()) if options.count else None
        request = abi.LaunchRequest(
            kernel=ctypes.pointer(counter.variant.info if counter else self._info),
            params=ctypes.addressof(packed),
            ranges=ranges,
            n_ranges=len(ranges),
            grid=grid,
            block=block,
            dynamic_shared_bytes=shared_bytes,
            cluster=cluster,
            n_workers=workers,
            order=get_args(LaneOrder).index(options.lane_order),
            finds_races=mode != "off",
            early_loads=options.early_loads,
            ordered_sums=options.ordered_sums,
            warps_meet=options.warps_meet,
            seed=options.seed,
            max_backward_branches=options.max_backward_branches,
            traffic=ctypes.pointer(counter.request) if counter else None,
        )
        result = abi.LaunchResult()
        self._runtime.library.emulator_launch(ctypes.byref(request), ctypes.byref(result))
        races: tuple[Race, ...] = ()
        if result.races.distinct:
            places = [(r.begin, r.bytes, names[r.index]) for r in ranges]
            races = RaceFormatter(self._ptx, self.name, grid, block, places).races(result.races)
        if result.error.kind:
            self._raise(result.error, names, ranges, races)
        if races and mode == "error":
            worst = races[0].second
            where = KernelLocation(self.name, worst.block, worst.thread, str(worst.source))
            raise RaceError(races, result.races.total, where)
        return LaunchReport(
            blocks=result.blocks_run,
            threads=result.blocks_run * block[0] * block[1] * block[2],
            workers=workers,
            collectives=dict(zip(abi.WAITS, result.counts.collectives, strict=True)),
            **{name: getattr(result.counts, name) for name in abi.COUNTED},
            races=races,
            racing_accesses=result.races.total,
            counts=counter.result() if counter else None,
        )

    def _counting_variant(self) -> CountingVariant:
        """Made when first asked for: it is compiled on its own, so the other one pays nothing."""
        if self._counting is None:
            self._counting = CountingVariant(self._ptx, self.name, self._runtime)
        return self._counting

    def _pack_parameters(self, params: Sequence[bytes]) -> ctypes.Array[ctypes.c_char]:
        sizes = tuple(len(param) for param in params)
        if sizes != self.parameter_sizes:
            raise InvalidLaunchError(
                f"{self.name}: parameters of {sizes} bytes given, {self.parameter_sizes} expected"
            )
        declared = [self._info.parameters[i] for i in range(len(sizes))]
        total = max((p.offset + p.bytes for p in declared), default=0)
        packed = bytearray(total)
        for place, value in zip(declared, params, strict=True):
            packed[place.offset : place.offset + place.bytes] = value
        # Tensor maps among them are aligned as on a GPU.
        buffer = ctypes.create_string_buffer(total + PARAMETER_ALIGNMENT)
        start = -ctypes.addressof(buffer) % PARAMETER_ALIGNMENT
        aligned = (ctypes.c_char * max(total, 1)).from_buffer(buffer, start)
        ctypes.memmove(aligned, bytes(packed), total)
        return aligned

    def _ranges(
        self, memory: Sequence[MemoryRange], packed: ctypes.Array[ctypes.c_char]
    ) -> tuple[list[str], ctypes.Array[abi.GlobalRange]]:
        """Registered memory, the module's arrays and the parameters, disjoint and sorted."""
        arrays = [self._info.globals[i] for i in range(self._info.n_globals)]
        ranges = [
            *memory,
            *(MemoryRange(a.address, a.bytes, bool(a.writable), a.name.decode()) for a in arrays),
            MemoryRange(ctypes.addressof(packed), len(packed), False, "kernel parameters"),
        ]
        merged: list[MemoryRange] = []
        for item in sorted(ranges, key=lambda r: (r.address, r.n_bytes)):
            if item.n_bytes <= 0:
                continue
            last = merged[-1] if merged else None
            if last and item.address < last.address + last.n_bytes:
                end = max(last.address + last.n_bytes, item.address + item.n_bytes)
                merged[-1] = MemoryRange(
                    last.address,
                    end - last.address,
                    last.writable or item.writable,
                    f"{last.name}+{item.name}",
                )
            else:
                merged.append(item)
        names = [f"{r.name} ({r.n_bytes} bytes)" for r in merged]
        records = (abi.GlobalRange * len(merged))(
            *(abi.GlobalRange(r.address, r.n_bytes, r.writable, i) for i, r in enumerate(merged))
        )
        return names, records

    def _raise(
        self,
        error: abi.ErrorRecord,
        names: list[str],
        ranges: ctypes.Array[abi.GlobalRange],
        races: tuple[Race, ...],
    ) -> None:
        lines = SourceLines(self._ptx)
        message = error.message.decode(errors="replace")
        message = re.sub(r"\{site:(\d+)\}", lambda m: str(lines.locate(int(m[1]))), message)
        message = re.sub(r"\{outside:(\d+)\}", lambda m: _outside(int(m[1]), ranges), message)
        message = re.sub(r"\{range:(\d+)\}", lambda m: names[int(m[1])], message)
        if error.kind == INVALID_LAUNCH:
            raise InvalidLaunchError(f"{self.name}: {message}")
        where = str(lines.locate(error.site))
        location = KernelLocation(self.name, tuple(error.ctaid), tuple(error.tid), where)
        raised: KernelError = KERNEL_ERRORS[error.kind](message, location)
        if races:
            raised.add_note(f"the race detector had found before: {races[0]}")
        raise raised


def _outside(address: int, ranges: ctypes.Array[abi.GlobalRange]) -> str:
    """Names the nearest range: an address just before or past one is an index error there."""
    found = []
    for item in ranges:
        beyond = address - (item.begin + item.bytes)
        if beyond >= 0:
            found.append((beyond, "past the end", item.index))
        elif address < item.begin:
            found.append((item.begin - address, "before the start", item.index))
        else:
            return f" crosses the end of {{range:{item.index}}}"
    if not found:
        return ": no memory is registered"
    distance, side, index = min(found, key=lambda place: place[0])
    return f", in no registered memory: {distance} bytes {side} of {{range:{index}}}"


def _race_mode(options: LaunchOptions) -> RaceMode:
    mode = options.races or os.environ.get(RACES_VARIABLE) or "error"
    if mode in get_args(RaceMode):
        return cast(RaceMode, mode)
    raise InvalidLaunchError(
        f"races={mode!r} (LaunchOptions or ${RACES_VARIABLE}): allowed are "
        + ", ".join(get_args(RaceMode))
    )


def compile_kernel(ptx: str, entry: str) -> EmulatedKernel:
    """Translates and compiles one entry, or takes it from the cache."""
    return EmulatedKernel(ptx, entry, runtime())


def compile_kernels(
    kernels: Iterable[tuple[str, str]], workers: int | None = None
) -> list[EmulatedKernel]:
    """Many (ptx, entry) pairs at once, compiled in parallel; results in the same order."""
    shared = runtime()
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        return list(pool.map(lambda item: EmulatedKernel(item[0], item[1], shared), kernels))
