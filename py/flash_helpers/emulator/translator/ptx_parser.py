"""PTX text to a small tree: module variables and entries, entries as statements with their line.

Only what compilers emit for kernels is understood; anything else is an error that names the line.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field

from ..errors import PtxSyntaxError


@dataclass(frozen=True)
class Variable:
    """An array in .shared, .local, .global or .const memory."""

    space: str
    name: str
    align: int
    n_bytes: int
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


@dataclass
class Scope:
    """A brace-enclosed list of statements with its own registers."""

    registers: dict[str, str] = field(default_factory=dict)  # name -> type; "%r<9>" as "%r<": "b32"
    variables: list[Variable] = field(default_factory=list)
    statements: list[Instruction | Label | Scope] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # name -> index of its statement


@dataclass(frozen=True)
class Entry:
    name: str
    parameters: tuple[Parameter, ...]
    body: Scope
    cluster: int = 0  # thread blocks of one, 0: the launch says how many


@dataclass(frozen=True)
class Module:
    variables: dict[str, Variable]
    entries: dict[str, tuple[int, int]]  # name -> text offsets of its declaration, end of body


_BLANKED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.S)
_DEBUG_LINE = re.compile(r"^[ \t]*\.(?:loc|file|version|target|address_size|pragma)\b[^\n]*", re.M)
_ITEM = re.compile(
    r"^[^\S\n]*(?:\.(?:visible|weak|extern)\s+)?\.(?:func\b|entry\s+(?P<entry>[\w$.]+))", re.M
)
_TOKEN = re.compile(
    r"\s*(?:(?P<label>[\w$.%]+)\s*:(?!:)|(?P<open>\{)|(?P<close>\})"
    r"|(?P<statement>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)",  # an empty one is not a statement
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
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+(?:\s*,\s*\d+)*)")
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
        start = self.module.entries[name][0]
        body = self._code.index("{", start)
        scope, _ = self._parse_scope(body + 1)
        head = self._code[start:body]
        return Entry(name, _parse_parameters(head), scope, self._cluster(head, start))

    def _cluster(self, head: str, offset: int) -> int:
        match = _CLUSTER.search(head)
        if match is None:
            return 0
        x, *others = map(int, match[1].split(","))
        if any(size != 1 for size in others):
            where = self._place(offset + match.start())
            raise PtxSyntaxError(f"{where}: {match[0].strip()}: clusters extend along x here")
        return x

    def _place(self, offset: int) -> str:
        return f"PTX line {self._line(offset)}"

    def _line(self, offset: int) -> int:
        return bisect_right(self._line_starts, offset)

    def _parse_module(self) -> Module:
        module = Module({}, {})
        position = 0
        for match in [*_ITEM.finditer(self._code), None]:
            end = match.start() if match else len(self._code)
            for statement in self._code[position:end].split(";")[:-1]:
                text = statement.lstrip()
                place = self._place(position + len(statement) - len(text))
                if variable := parse_variable(text.rstrip(), place):
                    module.variables[variable.name] = variable
                position += len(statement) + 1
            if match:
                position = self._end_of_item(match.end())
                if match["entry"]:
                    module.entries[match["entry"]] = (match.start(), position)
        return module

    def _end_of_item(self, position: int) -> int:
        """The place after the body of an entry or function, or after the ';' of its declaration."""
        match = re.compile(r"[{;]").search(self._code, position)
        if match is None or match[0] == ";":
            return match.end() if match else len(self._code)
        depth = 0
        for brace in re.compile(r"[{}]").finditer(self._code, match.start()):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                return brace.end()
        raise PtxSyntaxError(f"{self._place(match.start())}: unbalanced braces")

    def _parse_scope(self, position: int) -> tuple[Scope, int]:
        """What lies between here and the closing brace, and the place after that."""
        scope = Scope()
        while match := _TOKEN.match(self._code, position):
            position = match.end()
            if match["close"]:
                return scope, position
            if match["open"]:
                inner, position = self._parse_scope(position)
                scope.statements.append(inner)
            elif match["label"]:
                scope.labels.setdefault(match["label"], len(scope.statements))
                scope.statements.append(Label(match["label"]))
            elif match["statement"]:
                self._add_statement(scope, match["statement"].strip(), match.start("statement"))
        raise PtxSyntaxError(f"{self._place(position)}: cannot read this statement")

    def _add_statement(self, scope: Scope, text: str, offset: int) -> None:
        if text.startswith(".reg"):
            register_type, names = text.removeprefix(".reg").strip().split(None, 1)
            for name in names.split(","):
                scope.registers[re.sub(r"<\d+>", "<", name.strip())] = register_type[1:]
        elif text.startswith(".param"):
            pass  # arguments of a call: the call itself is judged
        elif text.startswith(".") and not text.startswith(".branchtargets"):
            variable = parse_variable(text, self._place(offset))
            if variable is None:
                raise PtxSyntaxError(f"{self._place(offset)}: directive not understood: {text}")
            scope.variables.append(variable)
        elif match := _INSTRUCTION.fullmatch(text.lstrip(".")):
            opcode, operands = match["opcode"].split("."), _OPERAND.findall(match["operands"])
            guard = match["guard"] or ""
            item = Instruction(self._line(offset), tuple(opcode), tuple(operands), guard)
            scope.statements.append(item)
        else:
            raise PtxSyntaxError(f"{self._place(offset)}: instruction not understood: {text}")


def parse_variable(text: str, place: str) -> Variable | None:
    match = _VARIABLE.match(text)
    if match is None:
        return None
    element = int(match["type"][1:]) // 8
    sizes = [int(size or 0) for size in re.findall(r"\[\s*(\d*)\s*\]", match["dims"])]
    initial = _initial_bytes(match["initial"], element, place) if match["initial"] else None
    align, extern = int(match["align"] or element), "extern" in match["linkage"]
    n_bytes = element * math.prod(sizes)
    return Variable(match["space"], match["name"], align, n_bytes, initial, extern)


def _initial_bytes(text: str, element: int, place: str) -> bytes:
    mask = (1 << 8 * element) - 1
    try:
        numbers = [parse_integer(item) for item in re.findall(r"[^\s,{}]+", text)]
    except ValueError:
        raise PtxSyntaxError(f"{place}: initial value not understood: {text[:60]}") from None
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
        element = int(match["type"][1:]) // 8
        align = int(match["align"] or element)
        offset = -(-offset // align) * align
        n_bytes = element * int(match["count"] or 1)
        parameters.append(Parameter(match["name"], offset, n_bytes))
        offset += n_bytes
    return tuple(parameters)
