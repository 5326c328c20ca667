"""The counting variant of a kernel at run time: its library, the arrays it fills, the result."""

import ctypes

from ..door import abi
from ..door.compile import Runtime
from ..door.source_lines import SourceLines
from ..translator.ptx_parser import PtxFile
from .counting import make_plan, opcode_class
from .counts import Counts, InstructionCounts, Totals


class CountingVariant:
    """Compiled on its own, so that kernels that are not counted pay nothing."""

    def __init__(self, ptx: str, entry: str, runtime: Runtime) -> None:
        self.entry = entry
        self._library = runtime.compile_kernel(ptx, entry, counting=True)
        self.info = abi.KernelInfo.in_dll(self._library, "kernel_info")
        self.plan = make_plan(PtxFile(ptx).entry(entry))
        lines = SourceLines(ptx)
        self.sources = [lines.innermost(item.instruction.line) for item in self.plan.instructions]


class Counter:
    """The counts of one launch, filled by csrc/emulator/counters/traffic.cpp."""

    def __init__(self, variant: CountingVariant) -> None:
        self.variant = variant
        plan = variant.plan
        self._executions = (ctypes.c_uint64 * plan.n_blocks)()
        self._accesses = (abi.AccessCounts * plan.n_accesses)()
        self.request = abi.TrafficRequest(
            plan.n_blocks, plan.n_accesses, self._executions, self._accesses
        )

    def result(self) -> Counts:
        found = []
        for item, source in zip(self.variant.plan.instructions, self.variant.sources, strict=True):
            ins = item.instruction
            access = abi.AccessCounts() if item.access is None else self._accesses[item.access]
            totals = Totals(
                self._executions[item.block],
                access.wavefronts,
                access.ideal_wavefronts,
                access.sectors,
                access.ideal_sectors,
            )
            kind = opcode_class(ins.opcode)
            found.append(InstructionCounts(ins.line, ".".join(ins.opcode), source, kind, totals))
        return Counts(self.variant.entry, tuple(found))
