"""PTX text to a small tree: module variables and entries, entries as statements with their line.

Only what compilers emit for kernels is understood; anything else is an error that names the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import PtxSyntaxError


@dataclass(frozen=True)
class Variable:
    """An array in .shared, .local, .global or .const memory."""

    space: str
    name: str
    align: int
    n_bytes: int
    line: int
    initial: bytes | None = None
    extern: bool = False


@dataclass(frozen=True)
class Parameter:
    name: str
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class Instruction:
    line: int
    opcode: tuple[str, ...]  # "ld.global.v4.u32" -> ("ld", "global", "v4", "u32")
    operands: tuple[str, ...]
    guard: str = ""  # the predicate of "@%p bra", "!%p" if negated

    @property
    def text(self) -> str:
        return f"{'.'.join(self.opcode)} {', '.join(self.operands)}".strip()


@dataclass(frozen=True)
class Label:
    name: str
    line: int


@dataclass
class Scope:
    """A brace-enclosed list of statements with its own registers."""

    line: int
    registers: dict[str, str] = field(default_factory=dict)  # name -> type; "%r<9>" as "%r<": "b32"
    variables: list[Variable] = field(default_factory=list)
    statements: list[Instruction | Label | Scope] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    name: str
    line: int
    parameters: tuple[Parameter, ...]
    body: Scope


@dataclass(frozen=True)
class Module:
    variables: dict[str, Variable]
    entries: dict[str, tuple[int, int]]  # name -> text offsets of its declaration, end of body


TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}

_BLANKED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.S)
_DEBUG_LINE = re.compile(r"^[ \t]*\.(?:loc|file|version|target|address_size|pragma)\b[^\n]*", re.M)
_ENTRY = re.compile(r"^[^\S\n]*(?:\.(?:visible|weak|extern)\s+)?\.entry\s+([\w$.]+)", re.M)
_FUNCTION = re.compile(r"^[^\S\n]*(?:\.(?:visible|weak|extern)\s+)?\.func\b", re.M)
_TOKEN = re.compile(
    r"\s*(?:(?P<label>[\w$.%]+)\s*:(?!:)|(?P<open>\{)|(?P<close>\})"
    r"|(?P<statement>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)",
)
_VARIABLE = re.compile(
    r"(?P<linkage>(?:\.(?:extern|visible|weak|common)\s+)*)\.(?P<space>shared|local|global|const)\s+"
    r"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[busf]\d+)\s+(?P<name>[\w$%.]+)\s*"
    r"(?P<dims>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<initial>.*))?$",
    re.S,
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[busf]\d+)\s+"
    r"(?:\.ptr\b(?:\s+\.(?:global|const|local|shared))?(?:\s+\.align\s+\d+)?\s+)?(?P<name>[\w$%.]+)\s*(?:\[(?P<count>\d+)\])?"
)
_INSTRUCTION = re.compile(
    r"(?:@(?P<guard>!?[\w%$.]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*)", re.S
)
_OPERAND = re.compile(r"\s*((?:\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]])+?)\s*(?:,|$)", re.S)


def blank_comments(text: str) -> str:
    """The same text with comments, strings and line directives as spaces: offsets stay."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return _DEBUG_LINE.sub(blank, _BLANKED.sub(blank, text))


class PtxFile:
    """One PTX text; entries are parsed on demand, because a module may hold many."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._code = blank_comments(text)
        self._line_starts = [0, *(m.end() for m in re.finditer(r"\n", text))]
        self.module = self._parse_module()

    def entry(self, name: str) -> Entry:
        if name not in self.module.entries:
            known = ", ".join(self.module.entries) or "none"
            raise PtxSyntaxError(f"no entry {name!r} in this PTX; its entries: {known}")
        start, end = self.module.entries[name]
        head_end = self._code.index("{", start)
        head = self._code[start:head_end]
        scope, position = self._parse_scope(head_end + 1, self._line(head_end))
        if position > end:
            raise PtxSyntaxError(f"entry {name} does not end")
        return Entry(name, self._line(start), _parse_parameters(head), scope)

    def _line(self, offset: int) -> int:
        low, high = 0, len(self._line_starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._line_starts[middle] <= offset else (low, middle)
        return low + 1

    def _parse_module(self) -> Module:
        entries: dict[str, tuple[int, int]] = {}
        outside = []
        position = 0
        for match in sorted(
            [*_ENTRY.finditer(self._code), *_FUNCTION.finditer(self._code)], key=lambda m: m.start()
        ):
            outside.append((position, match.start()))
            position = self._end_of_item(match.end())
            if match.re is _ENTRY:
                entries[match[1]] = (match.start(), position)
        outside.append((position, len(self._code)))
        variables = {}
        for start, end in outside:
            for statement in self._code[start:end].split(";")[:-1]:
                text = statement.strip()
                variable = parse_variable(text, self._line(start + statement.find(text)))
                if variable:
                    variables[variable.name] = variable
                start += len(statement) + 1
        return Module(variables, entries)

    def _end_of_item(self, position: int) -> int:
        """Behind the body of an entry or function, or behind the ';' of its declaration."""
        match = re.compile(r"[{;]").search(self._code, position)
        if match is None or match[0] == ";":
            return match.end() if match else len(self._code)
        depth = 0
        for brace in re.compile(r"[{}]").finditer(self._code, match.start()):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                return brace.end()
        raise PtxSyntaxError(f"PTX line {self._line(match.start())}: unbalanced braces")

    def _parse_scope(self, position: int, line: int) -> tuple[Scope, int]:
        scope = Scope(line)
        while True:
            match = _TOKEN.match(self._code, position)
            if match is None:
                raise PtxSyntaxError(f"PTX line {self._line(position)}: cannot read this statement")
            kind = match.lastgroup
            start = match.start(kind or 0)
            if kind == "statement":
                text = match["statement"]
                start += len(text) - len(text.lstrip())
                self._add_statement(scope, text.strip(), self._line(start))
                position = match.end()
            elif kind == "label":
                scope.statements.append(Label(match["label"], self._line(start)))
                position = match.end()
            elif kind == "open":
                inner, position = self._parse_scope(match.end(), self._line(start))
                scope.statements.append(inner)
            else:
                return scope, match.end()

    def _add_statement(self, scope: Scope, text: str, line: int) -> None:
        if not text:
            return
        if text.startswith(".reg"):
            register_type, names = text.removeprefix(".reg").strip().split(None, 1)
            for name in names.split(","):
                scope.registers[re.sub(r"<\d+>", "<", name.strip())] = register_type[1:]
        elif text.startswith(".param"):
            pass  # arguments of a call: the call itself is judged
        elif text.startswith("."):
            variable = parse_variable(text, line)
            if variable is None:
                raise PtxSyntaxError(f"PTX line {line}: directive not understood: {text}")
            scope.variables.append(variable)
        else:
            scope.statements.append(_parse_instruction(text, line))


def parse_variable(text: str, line: int) -> Variable | None:
    match = _VARIABLE.match(text)
    if match is None:
        return None
    element = TYPE_BYTES[match["type"][1:]]
    count = 1
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", match["dims"]):
        count *= int(dimension or 0)
    initial = _initial_bytes(match["initial"], element, line) if match["initial"] else None
    return Variable(
        space=match["space"],
        name=match["name"],
        align=int(match["align"] or element),
        n_bytes=element * count,
        line=line,
        initial=initial,
        extern="extern" in match["linkage"],
    )


def _initial_bytes(text: str, element: int, line: int) -> bytes:
    mask = (1 << 8 * element) - 1
    try:
        numbers = [parse_integer(item) for item in re.findall(r"[^\s,{}]+", text)]
    except ValueError:
        raise PtxSyntaxError(
            f"PTX line {line}: initial value not understood: {text[:60]}"
        ) from None
    return b"".join((number & mask).to_bytes(element, "little") for number in numbers)


def parse_integer(text: str) -> int:
    """A PTX integer or float literal as its bits; ValueError for anything else."""
    if re.fullmatch(r"0[fFdD][0-9A-Fa-f]{8}(?:[0-9A-Fa-f]{8})?", text):
        return int(text[2:], 16)
    text = text.rstrip("U")
    if re.fullmatch(r"-?0[0-7]+", text):
        return int(text, 8)
    return int(text, 0)


def _parse_parameters(head: str) -> tuple[Parameter, ...]:
    parameters = []
    offset = 0
    for match in _PARAMETER.finditer(head):
        element = TYPE_BYTES[match["type"][1:]]
        align = int(match["align"] or element)
        offset = (offset + align - 1) // align * align
        n_bytes = element * int(match["count"] or 1)
        parameters.append(Parameter(match["name"], offset, n_bytes))
        offset += n_bytes
    return tuple(parameters)


def _parse_instruction(text: str, line: int) -> Instruction:
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        raise PtxSyntaxError(f"PTX line {line}: instruction not understood: {text}")
    operands = match["operands"].strip()
    return Instruction(
        line=line,
        opcode=tuple(match["opcode"].split(".")),
        operands=tuple(_OPERAND.findall(operands)) if operands else (),
        guard=match["guard"] or "",
    )
