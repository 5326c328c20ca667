"""What Hopper adds to the translator: its instructions, and a pass for registers of matmuls."""

from ..translator.emitter import Emitter
from ..translator.forms import Modifiers
from ..translator.passes import Pass
from ..translator.ptx_parser import Entry, Instruction
from ..translator.registry import instruction
from . import cluster_ops, ops
from .registers import RegisterChecks
from .wgmma_ops import place_accumulators


@instruction("cp.async.bulk")
def bulk_copy(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    mods.require("async", "bulk")
    ops.bulk_copy(e, ins, mods)


@instruction("cp.reduce.async.bulk")
def bulk_reduction(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    mods.require("reduce", "async", "bulk")
    ops.bulk_reduction(e, ins, mods)


@instruction("fence.mbarrier_init", "fence.proxy")
def fence(e: Emitter, ins: Instruction) -> None:
    ops.fence(e, ins)


__all__ = ["MatmulRegisters", "cluster_ops"]


class MatmulRegisters(Pass):
    """Gives accumulators their arrays, and checks what touches registers of matmuls in flight."""

    def __init__(self, e: Emitter, entry: Entry) -> None:
        self._checks = RegisterChecks(entry)
        self._arrays = place_accumulators(e, entry)

    def at_entry(self) -> list[str]:
        return [*self._arrays, *self._checks.at_entry]

    def before(self, ins: Instruction) -> list[str]:
        return self._checks.before(ins)

    def after(self, ins: Instruction) -> list[str]:
        return self._checks.after(ins)
