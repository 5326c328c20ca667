"""One PTX entry to the C++ of one shared library."""

import re
from collections.abc import Sequence

from ..errors import UnsupportedPtxError
from . import control_ops, memory_ops, scalar_ops, warp_ops  # which registers their instructions
from .emitter import Emitter, global_name, symbol_table
from .forms import Unsupported
from .passes import Pass, PassOf
from .ptx_parser import Instruction, Label, PtxFile, Scope, Variable
from .ptx_types import PRED
from .registry import handler_of

FAMILIES = (control_ops, memory_ops, scalar_ops, warp_ops)


class _Translation:
    def __init__(self, emitter: Emitter, passes: Sequence[Pass]) -> None:
        self.emitter = emitter
        self.passes = passes
        self.problems: list[str] = []

    def scope(self, scope: Scope) -> None:
        e = self.emitter
        e.open_scope(scope)
        start = len(e.lines)
        position = 0
        while position < len(scope.statements):
            statement = scope.statements[position]
            position += 1
            if isinstance(statement, Scope):
                self.scope(statement)
            elif isinstance(statement, Label):
                label = e.label(statement.name)
                e.labels.add(label)
                e.emit(f"{label}:;")
            else:
                run = warp_ops.mma_run(scope.statements, position - 1) or [statement]
                self.instructions(run)
                position += len(run) - 1
        e.lines[start:start] = ["{", *e.close_scope()]
        e.emit("}")

    def instructions(self, run: list[Instruction]) -> None:
        """One instruction, or mma that are translated together."""
        e, ins = self.emitter, run[0]
        mark = len(e.lines)
        try:
            for item in run:
                e.lines += [line for added in self.passes for line in added.ahead(item)]
            if len(run) > 1:
                return warp_ops.emit_mma_run(e, run)
            handler = handler_of(ins)
            if handler is None:
                raise Unsupported("unknown opcode")
            if ins.guard:
                e.emit(f"if ({e.read(ins.guard, PRED)}) {{")
            e.lines += [line for added in self.passes for line in added.before(ins)]
            handler(e, ins)
            e.lines += [line for added in self.passes for line in added.after(ins)]
            if ins.guard:
                e.emit("}")
        except (Unsupported, KeyError, ValueError, IndexError) as error:
            del e.lines[mark:]
            reason = str(error) if isinstance(error, Unsupported) else "form not understood"
            self.problems.append(f"PTX line {ins.line}: {ins.text}  ({reason})")


def translate(ptx: PtxFile, entry_name: str, passes: Sequence[PassOf] = ()) -> str:
    """The C++ source of one entry with what the passes add; UnsupportedPtxError lists all that
    cannot be translated."""
    entry = ptx.entry(entry_name)
    variables = mentioned_variables(ptx, entry_name)
    symbols, shared_bytes, local_bytes = symbol_table(entry, variables)
    emitter = Emitter(entry, symbols)
    made = [add(emitter, entry) for add in passes]
    translation = _Translation(emitter, made)
    prologue = [line for added in made for line in added.at_entry()]
    translation.scope(entry.body)
    emitter.lines[:0] = prologue
    if problems := translation.problems:
        shown = "\n  ".join(problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise UnsupportedPtxError(
            f"kernel {entry_name}: {len(problems)} PTX instructions are not supported by the "
            f"emulator:\n  {shown}{more}"
        )
    module_arrays = [v for v in variables.values() if v.space in ("global", "const")]
    includes = ["kernel.h", *(name for added in made for name in added.includes)]
    return _source(emitter, module_arrays, shared_bytes, local_bytes, includes)


def mentioned_variables(ptx: PtxFile, entry_name: str) -> dict[str, Variable]:
    """Those of the module that the entry uses: only they take shared memory."""
    start, end = ptx.module.entries[entry_name]
    mentioned = set(re.findall(r"[\w$%.]+", ptx.text[start:end]))
    return {n: v for n, v in ptx.module.variables.items() if n in mentioned}


def _source(
    e: Emitter,
    arrays: Sequence[Variable],
    shared_bytes: int,
    local_bytes: int,
    includes: Sequence[str],
) -> str:
    entry = e.entry
    local = f"""alignas(128) u8 local[{local_bytes}];
__builtin_memset(local, 0xFF, sizeof local);
L->local = local;
L->local_bytes = {local_bytes};"""
    parameters = ", ".join(f"{{{p.offset}, {p.n_bytes}}}" for p in entry.parameters)
    globals_ = ", ".join(
        f'{{"{v.name}", {global_name(v.name)}, {v.n_bytes}, {int(v.space == "global")}}}'
        for v in arrays
    )
    # Every register and every operand record may have a stack slot of its own.
    stack_bytes = 2 * (e.register_bytes + local_bytes) + 64 * e.mma_run_max
    strong = "Strong" if e.orders_blocks or e.uses_global_atomics else ""
    body, declared = "\n".join(e.lines), "\n".join(map(_array, arrays))
    included = "\n".join(f'#include "{name}"' for name in includes)
    return f"""// {entry.name}
{included}
using namespace emulator;
namespace {{
constexpr u32 kStaticSharedBytes = {shared_bytes};
[[maybe_unused]] constexpr Access kReadIfOrdered = Access::k{strong}Read;
[[maybe_unused]] constexpr Access kWriteIfOrdered = Access::k{strong}Write;
{declared}
void kernel_body(Lane* L)
{{
{local if local_bytes else ""}
{body}
}}
constexpr KernelParameter kParameters[] = {{{parameters or "{}"}}};
const KernelGlobal kGlobals[] = {{{globals_ or "{}"}}};
}}  // namespace
extern "C" __attribute__((visibility("default"))) const KernelInfo kernel_info = {{
  &kernel_body, kParameters, kGlobals, {len(entry.parameters)}, {len(arrays)}, kStaticSharedBytes,
  {local_bytes}, {stack_bytes}, {int(e.uses_global_atomics)}, {e.smallest_access},
  {int(e.orders_blocks)}, {int(e.uses_sm90)}, {int(e.begins_early)},
  {entry.cluster},
}};
"""


def _array(variable: Variable) -> str:
    items = ",".join(map(str, variable.initial or b""))
    constant = "const " if variable.space == "const" else ""
    place = f"{global_name(variable.name)}[{max(variable.n_bytes, 1)}]"
    return f"alignas({max(variable.align, 16)}) {constant}u8 {place} = {{{items}}};"
