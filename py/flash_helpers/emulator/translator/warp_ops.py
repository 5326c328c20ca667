"""Instructions that the lanes of a warp, or the threads of a block, execute together."""

from collections.abc import Sequence

from .emitter import Emitter, elements
from .forms import Modifiers, Unsupported
from .ptx_parser import Instruction
from .ptx_types import F32, PRED, U32, PtxType
from .registry import computes, instruction


@instruction("shfl")
def shfl(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    mods.require("sync")
    mode = f"k{mods.take('up', 'down', 'bfly', 'idx').capitalize()}"
    mods.take("b32")
    mods.done()
    value, b, c, mask = (e.read(operand, U32) for operand in ins.operands[1:5])
    results = elements(ins.operands[0], "|")
    call = f"shfl_sync(L, Shuffle::{mode}, {value}, {b}, {c}, {mask}, {ins.line})"
    e.emit(f"{{ const ShuffleResult result = {call};")
    e.write(results[0], U32, "result.value")
    if len(results) > 1:
        e.write(results[1], PRED, "result.in_range")
    e.emit("}")


# vote.sync as a reduction: what a lane gives, how two are combined, what the result means.
_VOTES = {
    "all": ("{}", "a & b", "({} != 0)"),
    "any": ("{}", "a | b", "({} != 0)"),
    "uni": ("({} ? 2 : 1)", "a | b", "({} != 3)"),
    "ballot": ("u32{{{}}} << L->lane_id", "a | b", "{}"),
}


@computes("vote")
def vote(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    mods.require("sync")
    given, combined, result = _VOTES[mode := mods.take(*_VOTES)]
    mods.take("pred", "b32")
    mods.done()
    value = given.format(e.read(ins.operands[1], PRED))
    call = _reduce("kVote", combined, value, e.read(ins.operands[2], U32), ins)
    return U32 if mode == "ballot" else PRED, result.format(call)


def _reduce(kind: str, combined: str, value: str, mask: str, ins: Instruction) -> str:
    function = f"[](u32 a, u32 b) -> u32 {{ return {combined}; }}"
    return f"reduce_sync(L, Wait::{kind}, {function}, {value}, {mask}, {ins.line})"


@computes("redux")
def redux(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    cpp = mods.type().cpp
    combined = {
        "add": "a + b",
        "and": "a & b",
        "or": "a | b",
        "xor": "a ^ b",
        "min": f"{cpp}(a) < {cpp}(b) ? a : b",
        "max": f"{cpp}(a) > {cpp}(b) ? a : b",
    }[mods.take("add", "min", "max", "and", "or", "xor")]
    mods.require("sync")
    mods.done()
    value, mask = (e.read(operand, U32) for operand in ins.operands[1:3])
    return U32, _reduce("kReduce", combined, value, mask, ins)


@instruction("bar", "barrier")
def barrier(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    if mods.take("warp"):
        mods.require("sync")
        mods.done()
        return e.emit(f"bar_warp_sync(L, {e.read(ins.operands[0], U32)}, {ins.line});")
    mods.take("cta")
    aligned = ins.opcode[0] == "bar" or bool(mods.take("aligned"))
    alignment = f"Alignment::{'kAligned' if aligned else 'kAny'}"
    action = mods.take("sync", "arrive", "red")
    operands = ins.operands[1:-1] if action == "red" else ins.operands
    number = e.read(operands[0], U32)
    threads = e.read(operands[1], U32) if len(operands) > 1 else "kWholeBlock"
    place = f"{number}, {threads}, {ins.line}"
    if action == "sync":
        e.emit(f"barrier_sync(L, {alignment}, {place});")
    elif action == "arrive":
        e.emit(f"barrier_arrive(L, {place});")
    elif action == "red":
        value = {
            "popc": "own.predicate",
            "and": "own.predicate == own.threads",
            "or": "own.predicate != 0",
        }[mods.take("popc", "and", "or")]
        e.emit(f"{{ Ballot own{{{e.read(ins.operands[-1], PRED)}, 1}};")
        e.emit(f"barrier_sync(L, {alignment}, {place}, &own);")
        e.write(ins.operands[0], U32 if mods.take("u32", "pred") == "u32" else PRED, value)
        e.emit("}")
    else:
        raise Unsupported("this form of barrier")
    return mods.done()


@instruction("ldmatrix")
def ldmatrix(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    mods.require("sync", "aligned", "m8n8", "b16")
    count = int(mods.take("x1", "x2", "x4")[1:])
    transposed = "true" if mods.take("trans") else "false"
    if not mods.take("shared", "shared::cta"):
        raise Unsupported("ldmatrix from a generic address")
    mods.done()
    address = e.address(ins.operands[1], wide=False).expression
    e.emit(f"{{ u32 m[{count}]; ldmatrix(L, {count}, {transposed}, {address}, m, {ins.line});")
    for i, item in enumerate(elements(ins.operands[0])):
        e.write(item, U32, f"m[{i}]")
    e.emit("}")


# Shape and input type of the supported forms, in C++.
MMA_TYPES = {
    ("m16n8k16", "f16"): "MmaType::kF16",
    ("m16n8k16", "bf16"): "MmaType::kBf16",
    ("m16n8k8", "tf32"): "MmaType::kTf32",
}


def mma_run(statements: Sequence[object], start: int) -> list[Instruction]:
    """The mma from `start` on that use no result of an earlier one of them."""
    run: list[Instruction] = []
    written: set[str] = set()
    for position in range(start, len(statements)):
        ins = statements[position]
        if not isinstance(ins, Instruction) or ins.opcode[0] != "mma" or ins.guard:
            break
        used = {name for operand in ins.operands[1:] for name in elements(operand)}
        if written & used or (run and ins.opcode != run[0].opcode):
            break
        run.append(ins)
        written.update(elements(ins.operands[0]))
    return run


@instruction("mma")
def mma(e: Emitter, ins: Instruction) -> None:
    emit_mma_run(e, [ins])


def emit_mma_run(e: Emitter, run: list[Instruction]) -> None:
    """Independent mma instructions: the lanes meet once for all of them."""

    def values(operand: str, ptx_type: PtxType) -> str:
        return ", ".join(e.read(item, ptx_type) for item in elements(operand))

    mods = Modifiers(run[0])
    shape = mods.take("m16n8k16", "m16n8k8")
    mods.require("sync", "aligned", "row", "col")
    form = (shape, mods.left[1])
    if form not in MMA_TYPES or mods.left != ["f32", form[1], form[1], "f32"]:
        raise Unsupported(f"mma.{shape} of ." + ".".join(mods.left))
    e.mma_run_max = max(e.mma_run_max, len(run))
    e.emit("{")
    arrays: dict[str, str] = {}  # A registers -> name of the array that holds them
    records = []
    for ins in run:
        _, a, b, c = ins.operands
        if a not in arrays:
            arrays[a] = f"a{len(arrays)}"
            e.emit(f"const u32 {arrays[a]}[4] = {{{values(a, U32)}}};")
        records.append(f"{{{arrays[a]}, {{{values(b, U32)}}}, {{{values(c, F32)}}}}}")
    e.emit(f"MmaOperands o[{len(run)}] = {{{', '.join(records)}}};")
    e.emit(f"mma(L, {MMA_TYPES[form]}, o, {len(run)}, {run[0].line});")
    for i, ins in enumerate(run):
        for j, item in enumerate(elements(ins.operands[0])):
            e.write(item, F32, f"o[{i}].c[{j}]")
    e.emit("}")
