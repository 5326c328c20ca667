"""Turns operands into C++ expressions and collects the statements of one kernel."""

import re
from dataclasses import dataclass, field

from .forms import Unsupported
from .ptx_parser import Entry, Parameter, Scope, Variable, parse_integer
from .ptx_types import PRED, TYPES, U32, U64, PtxType, storage

SPECIAL_REGISTERS = {
    **{f"%tid.{axis}": f"L->tid[{i}]" for i, axis in enumerate("xyz")},
    **{
        f"%{name}.{axis}": f"L->position->{name}[{i}]"
        for name in ("ntid", "ctaid", "nctaid")
        for i, axis in enumerate("xyz")
    },
    "%laneid": "L->lane_id",
    "%warpid": "L->warp_id",
    "%nwarpid": "L->n_warps",
    "%smid": "0u",
    "%nsmid": "1u",
    "%gridid": "0u",
    "WARP_SZ": "32u",
    "%lanemask_eq": "(1u << L->lane_id)",
    "%lanemask_lt": "((1u << L->lane_id) - 1)",
    "%lanemask_le": "((2u << L->lane_id) - 1)",
    "%lanemask_gt": "~((2u << L->lane_id) - 1)",
    "%lanemask_ge": "~((1u << L->lane_id) - 1)",
    "%dynamic_smem_size": "(L->shared_bytes - kStaticSharedBytes)",
    "%total_smem_size": "L->shared_bytes",
}

_ADDRESS = re.compile(r"\[\s*([\w%$.]+)\s*(?:\+\s*(-?\w+)\s*)?\]")
_FLOAT_BITS = re.compile(r"0[fFdD]([0-9A-Fa-f]+)")


@dataclass
class Address:
    """[base+offset]: a C++ expression of 32 or 64 bits, or a place in the parameters."""

    expression: str
    parameter: Parameter | None = None
    offset: int = 0


@dataclass
class _Names:
    """The registers of one scope: declared families, and the C++ declarations of those used."""

    scope: Scope
    index: int
    used: dict[str, str] = field(default_factory=dict)  # C++ name -> C++ type

    def type_of(self, register: str) -> str:
        declared = self.scope.registers
        return declared.get(register) or declared.get(register.rstrip("0123456789") + "<", "")


class Emitter:
    """State while one entry is translated; `symbols` maps variables to address expressions."""

    def __init__(self, entry: Entry, symbols: dict[str, str]) -> None:
        self.entry = entry
        self.symbols = symbols
        self.parameters = {parameter.name: parameter for parameter in entry.parameters}
        self.lines: list[str] = []
        self.scopes: list[_Names] = []
        self.labels: set[str] = set()  # C++ labels already emitted: a branch there goes backward
        self.register_bytes = 0
        self.mma_run_max = 0
        self.uses_global_atomics = False
        self.smallest_access = 4
        self.orders_blocks = False
        self.uses_sm90 = False
        self.begins_early = False  # while the kernels before still run
        # Registers that are elements of arrays, by C++ name, and the arrays by their registers.
        self.aliases: dict[str, str] = {}
        self.accumulators: dict[tuple[str, ...], str] = {}
        self._scope_count = 0

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def open_scope(self, scope: Scope) -> _Names:
        names = _Names(scope, self._scope_count)
        self._scope_count += 1
        self.scopes.append(names)
        return names

    def close_scope(self) -> list[str]:
        """The declarations of the scope's registers."""
        names = self.scopes.pop()
        by_type: dict[str, list[str]] = {}
        for name, cpp in names.used.items():
            by_type.setdefault(cpp, []).append(name)
        self.register_bytes += 8 * len(names.used)
        # All ones is NaN: a register that is read before it is written shows.
        poison = {"bool": "true", "f32": "as<f32>(~0u)", "f64": "as<f64>(~u64{0})"}
        return [
            f"{cpp} " + ", ".join(f"{n} = {poison.get(cpp, f'{cpp}(-1)')}" for n in group) + ";"
            for cpp, group in by_type.items()
        ]

    def label(self, name: str) -> str:
        """The C++ label of a PTX label: labels belong to the innermost scope that has them."""
        for names in reversed(self.scopes):
            if name in names.scope.labels:
                return f"L{names.index}_" + re.sub(r"\W", "_", name)
        raise Unsupported(f"unknown label {name}")

    def register(self, name: str) -> tuple[str, str] | None:
        """(C++ name, C++ type) of a register; None if the name is not one."""
        for names in reversed(self.scopes):
            if declared := names.type_of(name):
                if declared not in TYPES:
                    raise Unsupported(f"registers of type .{declared}")
                cpp = storage(TYPES[declared])
                cpp_name = _register_name(names.index, name)
                if cpp_name in self.aliases:
                    return self.aliases[cpp_name], "f32"  # also where it is declared .b32
                names.used[cpp_name] = cpp
                return cpp_name, cpp
        return None

    def root_name(self, name: str) -> str:
        """The C++ name of a register of the entry's outermost scope."""
        return _register_name(0, name)

    def read(self, operand: str, ptx_type: PtxType) -> str:
        """A C++ expression of type ptx_type.cpp."""
        if operand.startswith("!") and ptx_type is PRED:
            return f"!{self.read(operand[1:], PRED)}"
        if register := self.register(operand):
            return _convert_bits(register[0], register[1], ptx_type.cpp)
        if operand in SPECIAL_REGISTERS:
            return f"{ptx_type.cpp}({SPECIAL_REGISTERS[operand]})"
        if re.match(r"-?\d", operand):
            return _constant(operand, ptx_type)
        if operand in self.symbols or operand in self.parameters:
            return f"{ptx_type.cpp}({self._symbol(operand)})"
        raise Unsupported(f"operand {operand}")

    def write(self, operand: str, ptx_type: PtxType, expression: str) -> None:
        if operand == "_":
            return self.emit(f"(void)({expression});")
        register = self.register(operand)
        if register is None:
            raise Unsupported(f"result {operand}")
        name, cpp = register
        if cpp != ptx_type.cpp:
            expression = f"{ptx_type.cpp}({expression})"
            if "f" in (cpp[0], ptx_type.cpp[0]):
                expression = f"as<{cpp}>({expression})"
        return self.emit(f"{name} = {expression};")

    def address(self, operand: str, wide: bool = True) -> Address:
        """[base+offset] as a 64-bit (wide) or 32-bit expression."""
        match = _ADDRESS.fullmatch(operand)
        if match is None:
            raise Unsupported(f"address {operand}")
        base, offset = match[1], parse_integer(match[2]) if match[2] else 0
        if base in self.parameters:
            return Address(self._symbol(base), self.parameters[base], offset)
        ptx_type = U64 if wide else U32
        if register := self.register(base):
            expression = f"{ptx_type.cpp}({register[0]})"
        elif base in self.symbols:
            expression = f"{ptx_type.cpp}({self.symbols[base]})"
        else:
            expression = _constant(base, ptx_type)
        if offset:
            expression += f" + {_constant(str(offset), ptx_type)}"
        return Address(expression)

    def _symbol(self, name: str) -> str:
        """The address of a variable in its own state space. Parameters begin at 0 of theirs, so 32
        bits hold it: compilers use either width, and cvta makes it generic."""
        if name in self.parameters:
            return f"{self.parameters[name].offset}u"
        return self.symbols[name]


def elements(operand: str, separator: str = ",") -> list[str]:
    """The elements of {a, b, ...} or p|q; a plain operand is one element."""
    return [item.strip() for item in operand.strip("{}").split(separator)]


def _register_name(scope: int, name: str) -> str:
    return f"v{scope}_" + re.sub(r"\W", "_", name.lstrip("%"))


def _convert_bits(expression: str, cpp: str, wanted: str) -> str:
    """The lowest bits of a register of C++ type `cpp` as a value of type `wanted`."""
    if cpp == wanted:
        return expression
    if "bool" in (cpp, wanted):
        raise Unsupported("a predicate where a number is needed, or the reverse")
    bits, wanted_bits = int(cpp[1:]), int(wanted[1:])
    if wanted_bits > bits:
        raise Unsupported(f"a {bits}-bit register read as {wanted_bits} bits")
    if cpp[0] == "f":
        expression = f"as<u{bits}>({expression})"
    if wanted[0] == "f":
        return f"as<{wanted}>(u{wanted_bits}({expression}))"
    return f"{wanted}({expression})"


def _constant(text: str, ptx_type: PtxType) -> str:
    cpp = ptx_type.cpp
    try:
        if bits := _FLOAT_BITS.fullmatch(text):
            literal = f"0x{bits[1]}" + ("u" if len(bits[1]) <= 8 else "ull")
            value = f"as<f{4 * len(bits[1])}>({literal})" if ptx_type.is_float else literal
        elif ptx_type.is_float:
            value = repr(float(text))
        elif ptx_type is PRED:
            value = str(int(parse_integer(text) != 0))
        else:
            value = f"{parse_integer(text) & ((1 << ptx_type.bits) - 1)}ull"
        return f"{cpp}({value})"
    except ValueError:
        raise Unsupported(f"constant {text}") from None


def symbol_table(
    entry: Entry, module_variables: dict[str, Variable]
) -> tuple[dict[str, str], int, int]:
    """Address expressions of all variables, and the bytes of static shared and local memory."""
    symbols: dict[str, str] = {}
    sizes = {"shared": 0, "local": 0}
    bases = {"shared": "kSharedBase", "local": "kLocalBase"}

    def place(variable: Variable, align: int) -> None:
        offset = -(-sizes[variable.space] // align) * align
        symbols[variable.name] = f"({bases[variable.space]} + {offset})"
        sizes[variable.space] = offset + variable.n_bytes

    dynamic = []
    for variable in (*module_variables.values(), *all_variables(entry.body)):
        if variable.space not in sizes:
            symbols[variable.name] = f"u64(&{global_name(variable.name)})"
        elif variable.extern and variable.n_bytes == 0:
            dynamic.append(variable)
        else:
            place(variable, variable.align)
    for variable in dynamic:  # all at one place, after what has a size
        place(variable, max(16, *(v.align for v in dynamic)))
    return symbols, sizes["shared"], sizes["local"]


def global_name(name: str) -> str:
    return "g_" + re.sub(r"\W", "_", name)


def all_variables(scope: Scope) -> list[Variable]:
    inner = [s for s in scope.statements if isinstance(s, Scope)]
    return [*scope.variables, *(variable for s in inner for variable in all_variables(s))]
