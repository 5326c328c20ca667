"""Translators of what blocks of a cluster do together."""

from ..translator.emitter import SPECIAL_REGISTERS, Emitter, elements
from ..translator.forms import Modifiers, Unsupported
from ..translator.ptx_parser import Instruction
from ..translator.ptx_types import U32
from ..translator.registry import instruction

# Clusters extend along x.
_RANK, _SIZE = "L->position->ctaid[0] % L->position->cluster", "L->position->cluster"
SPECIAL_REGISTERS |= {
    "%cluster_ctarank": f"({_RANK})",
    "%cluster_nctarank": _SIZE,
    "%cluster_ctaid.x": f"({_RANK})",
    "%cluster_nctaid.x": _SIZE,
    "%clusterid.x": f"(L->position->ctaid[0] / {_SIZE})",
    "%nclusterid.x": f"(L->position->nctaid[0] / {_SIZE})",
}
for _i, _axis in (1, "y"), (2, "z"):
    SPECIAL_REGISTERS |= {
        f"%cluster_ctaid.{_axis}": "0u",
        f"%cluster_nctaid.{_axis}": "1u",
        f"%clusterid.{_axis}": f"L->position->ctaid[{_i}]",
        f"%nclusterid.{_axis}": f"L->position->nctaid[{_i}]",
    }


@instruction("barrier.cluster")
def barrier(e: Emitter, ins: Instruction) -> None:
    e.uses_sm90 = True
    mods = Modifiers(ins)
    mods.require("cluster")
    action = mods.take("arrive", "wait")
    if not action:
        raise Unsupported("this form of barrier.cluster")
    alignment = "Aligned" if mods.take("aligned") else "Any"
    if action == "wait":
        mods.drop("acquire")
        e.emit(f"cluster_wait(L, {ins.line});")
    else:
        relaxed = mods.take("relaxed", "release") == "relaxed"
        ordering = "Relaxed" if relaxed else "InCluster"
        arguments = f"Ordering::k{ordering}, Alignment::k{alignment}"
        e.emit(f"cluster_arrive(L, {arguments}, {ins.line});")
    mods.done()


@instruction("mapa")
def map_to_rank(e: Emitter, ins: Instruction) -> None:
    e.uses_sm90 = True
    mods = Modifiers(ins)
    if not mods.take("shared::cluster") or not mods.take("u32"):
        raise Unsupported("mapa of a generic address")
    mods.done()
    address, rank = (e.read(operand, U32) for operand in ins.operands[1:])
    e.write(ins.operands[0], U32, f"map_to_rank(L, {address}, {rank}, {ins.line})")


@instruction("st.async")
def store_async(e: Emitter, ins: Instruction) -> None:
    e.uses_sm90 = True
    mods = Modifiers(ins)
    mods.require("async")
    if not mods.take("shared::cluster") or not mods.take("mbarrier::complete_tx::bytes"):
        raise Unsupported("st.async without an mbarrier of the cluster")
    ptx_type = mods.type()
    count = int((mods.take("v2", "v4") or "v1")[1])
    mods.drop("weak")
    mods.done()
    place, given, arrival = ins.operands
    values = elements(given)
    if len(values) != count:
        raise Unsupported(f"{len(values)} registers")
    at, full = (f"u32({e.address(operand, wide=False).expression})" for operand in (place, arrival))
    read = ", ".join(e.read(value, ptx_type) for value in values)
    n_bytes = count * ptx_type.n_bytes
    e.smallest_access = min(e.smallest_access, ptx_type.n_bytes)
    e.emit(f"{{ const {ptx_type.cpp} w[] = {{{read}}};")
    e.emit(
        f"store_async(L, {at}, reinterpret_cast<const u8*>(w), {n_bytes}, {full}, {ins.line}); }}"
    )
