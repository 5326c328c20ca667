"""Instructions that the lanes of a warp, or the threads of a block, execute together."""

from __future__ import annotations

from .emitter import Emitter
from .ptx_parser import Instruction
from .ptx_types import F32, PRED, U32, PtxType
from .registry import Modifiers, Unsupported, computes, instruction


@instruction("shfl")
def shfl(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    if not mods.take("sync"):
        raise Unsupported("shfl without .sync")
    mode = {"up": "kUp", "down": "kDown", "bfly": "kBfly", "idx": "kIdx"}[
        mods.take("up", "down", "bfly", "idx")
    ]
    mods.take("b32")
    mods.done()
    value, b, c, mask = (e.read(operand, U32) for operand in ins.operands[1:5])
    results = [item.strip() for item in ins.operands[0].split("|")]
    call = f"shfl_sync(L, Shuffle::{mode}, {value}, {b}, {c}, {mask}, {ins.line})"
    e.emit(f"{{ const ShuffleResult result = {call};")
    e.write(results[0], U32, "result.value")
    if len(results) > 1:
        e.write(results[1], PRED, "result.in_range")
    e.emit("}")


@computes("vote")
def vote(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    if not mods.take("sync"):
        raise Unsupported("vote without .sync")
    mode = mods.take("all", "any", "uni", "ballot")
    mods.take("pred", "b32")
    mods.done()
    predicate, mask = e.read(ins.operands[1], PRED), e.read(ins.operands[2], U32)
    call = f"vote_sync(L, Vote::k{mode.capitalize()}, {predicate}, {mask}, {ins.line})"
    return (U32, call) if mode == "ballot" else (PRED, f"({call} != 0)")


@computes("redux")
def redux(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    operation = mods.take("add", "min", "max", "and", "or", "xor")
    if not mods.take("sync") or ptx_type.bits != 32 or ptx_type.is_float:
        raise Unsupported("this form of redux")
    mods.done()
    suffix = {"min": ptx_type.name.upper(), "max": ptx_type.name.upper(), "add": "S32"}
    name = f"Reduce::k{operation.capitalize()}{suffix.get(operation, '')}"
    value, mask = (e.read(operand, U32) for operand in ins.operands[1:3])
    return U32, f"redux_sync(L, {name}, {value}, {mask}, {ins.line})"


@computes("activemask")
def activemask(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    """Only the lane itself: the one answer that holds however the lanes are scheduled."""
    return U32, "(1u << L->lane_id)"


@instruction("bar", "barrier")
def barrier(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    if mods.take("warp"):
        mods.take("sync")
        e.emit(f"bar_warp_sync(L, {e.read(ins.operands[0], U32)}, {ins.line});")
        mods.done()
        return
    mods.take("cta")
    aligned = ins.opcode[0] == "bar" or bool(mods.take("aligned"))
    alignment = "Alignment::kAligned" if aligned else "Alignment::kAny"
    action = mods.take("sync", "arrive", "red")
    operands = ins.operands
    if action == "red":
        operation = mods.take("popc", "and", "or")
        result_type = U32 if mods.take("u32", "pred") == "u32" else PRED
        operands = (*ins.operands[1:-1],)
    number = e.read(operands[0], U32)
    threads = e.read(operands[1], U32) if len(operands) > 1 else "kWholeBlock"
    place = f"{number}, {threads}"
    mods.done()
    if action == "sync":
        e.emit(f"barrier_sync(L, {alignment}, {place}, {ins.line});")
    elif action == "arrive":
        e.emit(f"barrier_arrive(L, {place}, {ins.line});")
    elif action == "red":
        name = f"BarrierReduce::k{operation.capitalize()}"
        predicate = e.read(ins.operands[-1], PRED)
        call = f"barrier_reduce(L, {alignment}, {name}, {place}, {predicate}, {ins.line})"
        e.write(ins.operands[0], result_type, f"{result_type.cpp}({call})")
    else:
        raise Unsupported("this form of barrier")


@instruction("ldmatrix")
def ldmatrix(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    for required in ("sync", "aligned", "m8n8", "b16"):
        if not mods.take(required):
            raise Unsupported(f"ldmatrix without .{required}")
    count = int(mods.take("x1", "x2", "x4")[1:])
    transposed = "true" if mods.take("trans") else "false"
    if not mods.take("shared", "shared::cta"):
        raise Unsupported("ldmatrix from a generic address")
    mods.done()
    address = e.address(ins.operands[1], wide=False).expression
    e.emit(f"{{ u32 m[{count}]; ldmatrix(L, {count}, {transposed}, {address}, m, {ins.line});")
    for i, item in enumerate(e.vector(ins.operands[0])):
        e.write(item, U32, f"m[{i}]")
    e.emit("}")


# Shape and input type of the supported forms, in C++.
MMA_TYPES = {
    ("m16n8k16", "f16"): "MmaType::kF16",
    ("m16n8k16", "bf16"): "MmaType::kBf16",
    ("m16n8k8", "tf32"): "MmaType::kTf32",
}


def is_mma(ins: object) -> bool:
    return isinstance(ins, Instruction) and ins.opcode[0] == "mma" and not ins.guard


def mma_run_length(statements: list[Instruction]) -> int:
    """How many mma from the first on use no result of an earlier one of them."""
    written: set[str] = set()
    for i, ins in enumerate(statements):
        if not is_mma(ins) or ins.opcode != statements[0].opcode:
            return i
        if any(name in written for operand in ins.operands[1:] for name in _elements(operand)):
            return i
        written.update(_elements(ins.operands[0]))
    return len(statements)


def _elements(operand: str) -> list[str]:
    return [item.strip() for item in operand.strip("{}").split(",")]


def _values(e: Emitter, operand: str, ptx_type: PtxType) -> str:
    return ", ".join(e.read(item, ptx_type) for item in e.vector(operand))


@instruction("mma")
def mma(e: Emitter, ins: Instruction) -> None:
    emit_mma_run(e, [ins])


def emit_mma_run(e: Emitter, run: list[Instruction]) -> None:
    """Independent mma instructions: the lanes meet once for all of them."""
    mods = Modifiers(run[0])
    shape = mods.take("m16n8k16", "m16n8k8")
    for required in ("sync", "aligned", "row", "col"):
        if not mods.take(required):
            raise Unsupported(f"mma without .{required}")
    inputs = {mods.left[1], mods.left[2]} if len(mods.left) == 4 else set()
    if len(inputs) != 1 or mods.left[0] != "f32" or mods.left[3] != "f32":
        raise Unsupported("mma types ." + ".".join(mods.left))
    form = (shape, inputs.pop())
    if form not in MMA_TYPES:
        raise Unsupported(f"mma.{'.'.join(form)}")
    e.mma_run_max = max(e.mma_run_max, len(run))
    e.emit("{")
    arrays: dict[str, str] = {}  # A registers -> name of the array that holds them
    records = []
    for ins in run:
        _, a, b, c = ins.operands
        if a not in arrays:
            arrays[a] = f"a{len(arrays)}"
            e.emit(f"const u32 {arrays[a]}[4] = {{{_values(e, a, U32)}}};")
        records.append(f"{{{arrays[a]}, {{{_values(e, b, U32)}}}, {{{_values(e, c, F32)}}}}}")
    e.emit(f"MmaOperands o[{len(run)}] = {{{', '.join(records)}}};")
    e.emit(f"mma(L, {MMA_TYPES[form]}, o, {len(run)}, {run[0].line});")
    for i, ins in enumerate(run):
        for j, item in enumerate(e.vector(ins.operands[0])):
            e.write(item, F32, f"o[{i}].c[{j}]")
    e.emit("}")
