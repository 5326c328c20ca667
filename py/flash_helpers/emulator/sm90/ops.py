"""Translators of Hopper's instructions, but for warpgroup matmuls (wgmma_ops.py)."""

import re

from ..translator.emitter import Emitter, elements
from ..translator.forms import Modifiers, Unsupported
from ..translator.ptx_parser import Instruction
from ..translator.ptx_types import PRED, S32, U16, U32, U64
from ..translator.registry import instruction

_SHARED = ("shared", "shared::cta", "shared::cluster")
_SCOPES = ("cta", "cluster")
_TENSOR_OPERAND = re.compile(r"\[\s*([^,]+?)\s*,\s*\{([^}]*)\}\s*\]", re.S)
RANKS = ("1d", "2d", "3d", "4d", "5d")


def _shared(e: Emitter, mods: Modifiers, operand: str) -> str:
    """The 32-bit address; a generic one of shared memory has it in its lower half."""
    wide = not mods.take(*_SHARED)
    return f"u32({e.address(operand, wide=wide).expression})"


def _ordering(mods: Modifiers) -> str:
    relaxed = mods.take("relaxed", "release", "acquire") == "relaxed"
    in_cluster = mods.take(*_SCOPES) == "cluster"
    return f"Ordering::k{'Relaxed' if relaxed else 'InCluster' if in_cluster else 'Ordered'}"


@instruction("mbarrier")
def mbarrier(e: Emitter, ins: Instruction) -> None:
    e.uses_sm90 = True
    mods = Modifiers(ins)
    action = mods.take(
        "init", "inval", "arrive", "expect_tx", "complete_tx", "test_wait", "try_wait"
    )
    if not mods.take("b64"):
        raise Unsupported("mbarrier without .b64")
    operands = ins.operands
    if action == "init":
        place = _shared(e, mods, operands[0])
        e.emit(f"mbarrier_init(L, {place}, {e.read(operands[1], U32)}, {ins.line});")
    elif action == "inval":
        e.emit(f"mbarrier_inval(L, {_shared(e, mods, operands[0])}, {ins.line});")
    elif action == "arrive":
        _arrive(e, ins, mods)
    elif action in ("expect_tx", "complete_tx"):
        _ordering(mods)
        place, n_bytes = _shared(e, mods, operands[0]), e.read(operands[1], U32)
        e.emit(f"mbarrier_{action}(L, {place}, {n_bytes}, {ins.line});")
    elif action in ("test_wait", "try_wait"):
        _wait(e, ins, mods)
    else:
        raise Unsupported("this form of mbarrier")
    mods.done()


def _arrive(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    expects = bool(mods.take("expect_tx"))
    ordering = _ordering(mods)
    operands = ins.operands
    if operands[0].startswith("["):  # a barrier of another block has no state to return
        operands = ("_", *operands)
    in_cluster = "shared::cluster" in mods.left
    place = _shared(e, mods, operands[1])
    number = e.read(operands[2], U32) if len(operands) > 2 else "1u"
    counts = f"1u, {number}" if expects else f"{number}, 0u"
    arguments = f"L, {place}, {counts}, {ordering}, {ins.line}"
    if in_cluster:
        e.emit(f"mbarrier_arrive_in_cluster({arguments});")
    else:
        e.write(operands[0], U64, f"mbarrier_arrive({arguments})")


def _wait(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    parity = bool(mods.take("parity"))
    ordering = _ordering(mods)
    place = _shared(e, mods, ins.operands[1])
    phase = e.read(ins.operands[2], U32 if parity else U64)
    kind = "parity" if parity else "state"
    call = f"mbarrier_wait_{kind}(L, {place}, {phase}, {ordering}, {ins.line})"
    e.write(ins.operands[0], PRED, call)


def fence(e: Emitter, ins: Instruction) -> bool:
    """Fences of asynchronous units; False for the others."""
    mods = Modifiers(ins)
    if mods.take("mbarrier_init"):
        mods.drop("release", "cluster")
        e.emit("fence_mbarrier_init(L);")
    elif mods.take("proxy"):
        if not mods.take("async"):
            raise Unsupported("fences of this proxy")
        memory = "kGlobal" if mods.take("global") else "kShared" if mods.take(*_SHARED) else "kAll"
        e.emit(f"fence_proxy_async(L, Proxied::{memory});")
    else:
        return False
    e.uses_sm90 = True
    mods.done()
    return True


def bulk_copy(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    """cp.async.bulk: `mods` are what follows."""
    e.uses_sm90 = True
    if mods.take("commit_group"):
        e.emit("bulk_commit_group(L);")
    elif mods.take("wait_group"):
        until = "kRead" if mods.take("read") else "kWritten"
        e.emit(f"bulk_wait_group(L, {e.read(ins.operands[0], U32)}, Until::{until});")
    elif mods.take("prefetch"):
        _check_policy(e, ins, mods)
        mods.drop(*mods.left)
    else:
        _check_policy(e, ins, mods)
        _copy(e, ins, mods)
    mods.done()


def _check_policy(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    """The last operand: there is no cache that it could change, but it must be one."""
    if mods.take("L2::cache_hint"):
        e.emit(f"check_cache_policy(L, {e.read(ins.operands[-1], U64)}, {ins.line});")


def _copy(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    tensor = bool(mods.take("tensor"))
    rank = int((mods.take(*RANKS) or "0d")[0])
    loads = bool(mods.take("mbarrier::complete_tx::bytes"))
    if not loads and not mods.take("bulk_group"):
        raise Unsupported("bulk copy without mbarrier or bulk_group")
    mods.take("tile")
    multicast = bool(mods.take("multicast::cluster"))
    if multicast and not (tensor and loads):
        raise Unsupported("multicast of plain bytes")
    e.smallest_access = min(e.smallest_access, 4)
    operands = ins.operands
    if not mods.take("global"):
        if tensor or not loads or not mods.take("shared::cta"):
            raise Unsupported("bulk copy without global memory")
        mods.require("shared::cluster")
        to, source, barrier = (
            f"u32({e.address(operands[i], wide=False).expression})" for i in (0, 1, 3)
        )
        size = e.read(operands[2], U32)
        e.emit(f"bulk_copy_in_cluster(L, {to}, {source}, {size}, {barrier}, {ins.line});")
        return
    shared = _shared(e, mods, operands[0 if loads else 1])
    barrier = (
        f"u32({e.address(operands[2 if tensor else 3], wide=False).expression})" if loads else ""
    )
    if not tensor:
        other = e.address(operands[1 if loads else 0]).expression
        size = e.read(operands[2], U32)
        if loads:
            e.emit(f"bulk_load(L, {shared}, {other}, {size}, {barrier}, {ins.line});")
        else:
            e.emit(f"bulk_store(L, {other}, {shared}, {size}, StoreBy::kReplacing, {ins.line});")
        return
    match = _TENSOR_OPERAND.fullmatch(operands[1 if loads else 0])
    places = [item.strip() for item in match[2].split(",")] if match else []
    if match is None or len(places) != rank:
        raise Unsupported("tensor coordinates")
    tensor_map = e.address(f"[{match[1]}]").expression
    e.emit(f"{{ const s32 place[] = {{{', '.join(e.read(place, S32) for place in places)}}};")
    if loads:
        name, blocks = "tensor_load", ""
        if multicast:
            name, blocks = "tensor_load_multicast", f" {e.read(operands[3], U16)},"
        arguments = f"L, {rank}, {shared}, {tensor_map}, place, {barrier},{blocks} {ins.line}"
        e.emit(f"{name}({arguments}); }}")
    else:
        e.emit(f"tensor_store(L, {rank}, {tensor_map}, place, {shared}, {ins.line}); }}")


def bulk_reduction(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    """cp.reduce.async.bulk, of plain bytes to global memory: `mods` are what follows."""
    e.uses_sm90 = e.uses_global_atomics = True
    _check_policy(e, ins, mods)
    for required in ("global", "bulk_group", "add", "f32"):
        if not mods.take(required):
            raise Unsupported(f"bulk reduction without .{required}")
    e.smallest_access = min(e.smallest_access, 4)
    destination, source, size = ins.operands[:3]
    arguments = f"{e.address(destination).expression}, {_shared(e, mods, source)}"
    e.emit(f"bulk_store(L, {arguments}, {e.read(size, U32)}, StoreBy::kAdding, {ins.line});")
    mods.done()


@instruction("stmatrix")
def stmatrix(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    for required in ("sync", "aligned", "m8n8", "b16"):
        if not mods.take(required):
            raise Unsupported(f"stmatrix without .{required}")
    count = int(mods.take("x1", "x2", "x4")[1:])
    transposed = "true" if mods.take("trans") else "false"
    if not mods.take("shared", "shared::cta"):
        raise Unsupported("stmatrix to a generic address")
    mods.done()
    address = e.address(ins.operands[0], wide=False).expression
    values = ", ".join(e.read(item, U32) for item in elements(ins.operands[1]))
    e.emit(f"{{ const u32 m[{count}] = {{{values}}};")
    e.emit(f"stmatrix(L, {count}, {transposed}, {address}, m, {ins.line}); }}")


@instruction("elect")
def elect(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    if not mods.take("sync"):
        raise Unsupported("elect without .sync")
    mods.done()
    results = [item.strip() for item in ins.operands[0].split("|")]
    if len(results) != 2:
        raise Unsupported("elect without a predicate")
    e.emit(
        f"{{ const ElectResult result = elect_sync(L, {e.read(ins.operands[1], U32)}, {ins.line});"
    )
    e.write(results[0], U32, "result.leader")
    e.write(results[1], PRED, "result.is_leader")
    e.emit("}")


@instruction("setmaxnreg")
def setmaxnreg(e: Emitter, ins: Instruction) -> None:
    e.uses_sm90 = True
    mods = Modifiers(ins)
    change = {"inc": "kIncrease", "dec": "kDecrease"}[mods.take("inc", "dec")]
    mods.drop("sync", "aligned", "u32")
    mods.done()
    count = e.read(ins.operands[0], U32)
    e.emit(f"setmaxnreg(L, Registers::{change}, {count}, {ins.line});")


@instruction("griddepcontrol")
def griddepcontrol(e: Emitter, ins: Instruction) -> None:
    """Launches of an emulator do not overlap, but a kernel that waits for those before it is taken
    for one that has begun before they end."""
    mods = Modifiers(ins)
    if mods.take("wait", "launch_dependents") == "wait":
        e.begins_early = True
        e.emit("L->awaits_grids = false;")
    mods.done()


@instruction("pmevent")
def pmevent(e: Emitter, ins: Instruction) -> None:
    """An emulator has no profiler."""
    Modifiers(ins).done()
