"""One PTX entry to the C++ of one shared library."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..counters.counting import CountingCalls, make_plan
from ..errors import UnsupportedPtxError
from ..sm90.registers import RegisterChecks
from ..sm90.wgmma_ops import place_accumulators

# Importing the instruction families registers them.
from . import arithmetic_ops, compare_ops, control_ops, convert_ops, logic_ops, memory_ops, warp_ops
from .emitter import Emitter, all_variables, global_name, symbol_table
from .ptx_parser import Entry, Instruction, Label, PtxFile, Scope, Variable
from .registry import HANDLERS, Unsupported

FAMILIES = (arithmetic_ops, compare_ops, control_ops, convert_ops, logic_ops, memory_ops, warp_ops)


class _Translation:
    def __init__(self, emitter: Emitter, counting: CountingCalls | None) -> None:
        self.emitter = emitter
        self.counting = counting
        self.checks = RegisterChecks(emitter.entry)
        self.problems: list[str] = []

    def scope(self, scope: Scope) -> None:
        e = self.emitter
        names = e.open_scope(scope)
        start = len(e.lines)
        statements = scope.statements
        i = 0
        while i < len(statements):
            statement = statements[i]
            if isinstance(statement, Scope):
                self.scope(statement)
            elif isinstance(statement, Label):
                label = e.label(statement.name)
                e.labels.add(label)
                e.emit(f"{label}:;")
            elif warp_ops.is_mma(statement):
                i += self.mma_run(statements[i:])
                continue
            else:
                self.instruction(statement)
            i += 1
        assert names is e.scopes[-1]
        e.lines[start:start] = ["{", *e.close_scope()]
        e.emit("}")

    def instruction(self, ins: Instruction) -> None:
        e = self.emitter
        mark = len(e.lines)
        try:
            if self.counting:
                self.counting.before(e, ins)
            handler = HANDLERS.get(ins.opcode[0])
            if handler is None:
                raise Unsupported("unknown opcode")
            if ins.guard:
                e.emit(f"if ({e.guard(ins)}) {{")
            e.lines += self.checks.before(ins)
            handler(e, ins)
            e.lines += self.checks.after(ins)
            if ins.guard:
                e.emit("}")
        except (Unsupported, KeyError, ValueError, IndexError) as error:
            del e.lines[mark:]
            reason = str(error) if isinstance(error, Unsupported) else "form not understood"
            self.problems.append(f"PTX line {ins.line}: {ins.text}  ({reason})")

    def mma_run(self, rest: Sequence[Instruction | Label | Scope]) -> int:
        run: list[Instruction] = []
        for statement in rest:
            if not isinstance(statement, Instruction):
                break
            run.append(statement)
            if not warp_ops.is_mma(statement):
                break
        length = warp_ops.mma_run_length(run)
        if self.counting:
            for ins in run[:length]:
                self.counting.before(self.emitter, ins)
        try:
            warp_ops.emit_mma_run(self.emitter, run[:length])
        except Unsupported as error:
            self.problems.append(f"PTX line {run[0].line}: {run[0].text}  ({error})")
        return length


def translate(ptx: PtxFile, entry_name: str, counting: bool = False) -> str:
    """The C++ source of one entry, or of its counting variant; UnsupportedPtxError lists all that
    cannot be translated."""
    entry = ptx.entry(entry_name)
    variables = _mentioned_variables(ptx, entry_name)
    symbols, shared_bytes, local_bytes = symbol_table(entry, variables)
    emitter = Emitter(entry, symbols)
    translation = _Translation(emitter, CountingCalls(make_plan(entry)) if counting else None)
    prologue = [*place_accumulators(emitter, entry), *translation.checks.at_entry]
    translation.scope(entry.body)
    emitter.lines[:0] = prologue
    if translation.problems:
        problems = translation.problems
        shown = "\n  ".join(problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise UnsupportedPtxError(
            f"kernel {entry_name}: {len(problems)} PTX instructions are not supported by the "
            f"emulator:\n  {shown}{more}"
        )
    module_arrays = [v for v in variables.values() if v.space in ("global", "const")]
    return _source(emitter, module_arrays, shared_bytes, local_bytes, counting)


def _mentioned_variables(ptx: PtxFile, entry_name: str) -> dict[str, Variable]:
    """Those of the module that the entry uses: only they take shared memory."""
    start, end = ptx.module.entries[entry_name]
    mentioned = set(re.findall(r"[\w$%.]+", ptx.text[start:end]))
    return {n: v for n, v in ptx.module.variables.items() if n in mentioned}


def shared_variables(ptx: PtxFile, entry_name: str) -> dict[str, tuple[int, int]]:
    """Offset and bytes of the shared variables, for reports; dynamic ones have 0 bytes."""
    entry, variables = ptx.entry(entry_name), _mentioned_variables(ptx, entry_name)
    symbols, _, _ = symbol_table(entry, variables)
    return {
        variable.name: (int(match[1]), variable.n_bytes)
        for variable in (*variables.values(), *all_variables(entry.body))
        if (match := re.fullmatch(r"\(kSharedBase \+ (\d+)\)", symbols.get(variable.name, "")))
    }


def _source(
    e: Emitter, arrays: Sequence[Variable], shared_bytes: int, local_bytes: int, counting: bool
) -> str:
    entry = e.entry
    local = [
        f"alignas(128) u8 local[{local_bytes}];",
        "__builtin_memset(local, 0xFF, sizeof local);",
        "L->local = local;",
        f"L->local_bytes = {local_bytes};",
    ]
    parameters = ", ".join(f"{{{p.offset}, {p.n_bytes}}}" for p in entry.parameters)
    globals_ = ", ".join(
        f'{{"{v.name}", {global_name(v.name)}, {v.n_bytes}, {int(v.space == "global")}}}'
        for v in arrays
    )
    # Every register and every operand record may have a stack slot of its own.
    stack_bytes = 2 * (e.register_bytes + local_bytes) + 64 * e.mma_run_max
    lines = [
        f"// {entry.name}",
        '#include "kernel.h"',
        '#include "traffic.h"' if counting else "",
        "using namespace emulator;",
        "namespace {",
        f"constexpr u32 kStaticSharedBytes = {shared_bytes};",
        *(_array(variable) for variable in arrays),
        "void kernel_body(Lane* L)",
        "{",
        *(local if local_bytes else []),
        *e.lines,
        "}",
        f"constexpr KernelParameter kParameters[] = {{{parameters or '{}'}}};",
        f"const KernelGlobal kGlobals[] = {{{globals_ or '{}'}}};",
        "}  // namespace",
        'extern "C" __attribute__((visibility("default"))) const KernelInfo kernel_info = {',
        "&kernel_body, kParameters, kGlobals,",
        f"{len(entry.parameters)}, {len(arrays)}, kStaticSharedBytes, {local_bytes},",
        f"{stack_bytes}, {int(e.uses_global_atomics)},",
        f"{e.smallest_access}, {int(e.orders_blocks)}, {int(e.uses_sm90)},",
        "};",
        "",
    ]
    return "\n".join(lines)


def _array(variable: Variable) -> str:
    items = ",".join(str(byte) for byte in variable.initial or b"")
    constant = "const " if variable.space == "const" else ""
    size = max(variable.n_bytes, 1)
    return (
        f"alignas({max(variable.align, 16)}) {constant}u8 {global_name(variable.name)}[{size}] = "
        f"{{{items}}};"
    )


def entry_names(ptx: str) -> tuple[str, ...]:
    return tuple(PtxFile(ptx).module.entries)


__all__ = ["Entry", "entry_names", "shared_variables", "translate"]
