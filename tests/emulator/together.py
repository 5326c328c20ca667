"""Mutants of a kernel compiled into one library: one by one they take longer than their checks.
It is kept for the next run, which translates nothing.

The C++ of a mutant differs from the kernel's in a few lines. The library holds the kernel once, and
where mutants differ it asks which of them it is. Each mutant gets a copy of the file, which is told
its number once it is loaded."""

from __future__ import annotations

import ctypes
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from unittest.mock import patch

import flash_helpers.emulator
from flash_helpers.emulator.door.compile import Runtime, kernel_source, runtime
from tests.kept_files import kept

_START, _END = "void kernel_body(Lane* L)", "constexpr KernelParameter kParameters"
_DECLARED = re.compile(r"((?:bool|[usf]\d+) v\d+)_\w+ = ")
_ASSIGNED = re.compile(r"v\d+_\w+ = ")  # a register, which is declared elsewhere
_LABEL = re.compile(r"L\d+_\w+:;")
_RECORD = re.compile(r"^(  \d+, )(\d+)(, \d+, \d+,)$", re.M)  # with the bytes of the stack
_LONGEST = 200  # lines of a block that is repeated whole
_SEEN = 'extern "C" __attribute__((visibility("default")))'


@dataclass(frozen=True)
class _Source:
    """The C++ of a kernel."""

    head: str
    body: list[str]  # without the declarations of registers
    declared: dict[
        str, tuple[int, list[str]]
    ]  # by type and scope: the place in the body, registers
    tail: str  # without the bytes of the stack
    stack: int

    @classmethod
    def of(cls, text: str) -> _Source:
        lines = text.split("\n")
        start = lines.index(_START) + 2  # behind the brace
        end = next(i for i, line in enumerate(lines) if line.startswith(_END)) - 1
        body: list[str] = []
        declared = {}
        for line in lines[start:end]:
            if match := _DECLARED.match(line):
                registers = line.removesuffix(";").partition(" ")[2].split(", ")
                declared[match[1]] = len(body), registers
            else:
                body.append(line)
        tail = "\n".join(lines[end:])
        record = _RECORD.search(tail)
        assert record, "the translator ends with it"
        tail = tail[: record.start(2)] + "STACK" + tail[record.end(2) :]
        return cls("\n".join(lines[:start]), body, declared, tail, int(record[2]))


@dataclass(frozen=True)
class _Change:
    """Lines [start, end) of the kernel's body are others in a mutant."""

    number: int
    start: int
    end: int
    lines: list[str]


def _change(number: int, kernel: _Source, mutant: _Source) -> _Change | None:
    """None where it is not a few lines that can stand in a branch of their own."""
    scopes = [{key: place for key, (place, _) in s.declared.items()} for s in (kernel, mutant)]
    if (kernel.head, kernel.tail, scopes[0].keys()) != (mutant.head, mutant.tail, scopes[1].keys()):
        return None
    old, new = kernel.body, mutant.body
    start, behind = _common(old, new), _common(old[::-1], new[::-1])
    behind = min(behind, min(len(old), len(new)) - start)
    first, last = start, len(old) - behind
    if not all(map(_ASSIGNED.match, [*old[first:last], *new[first : len(new) - behind]])):
        first, last = _with_blocks(old, first, last)
    lines = new[first : len(new) - (len(old) - last)]
    if any(first < place < last for place in scopes[0].values()):
        return None
    if not all(_stands_alone(part) for part in (old[first:last], lines)):
        return None
    return _Change(number, first, last, lines)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines they begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _depths(lines: Sequence[str]) -> list[int]:
    """In braces, before each line and behind the last."""
    depths = [0]
    for line in lines:
        depths.append(depths[-1] + line.count("{") - line.count("}"))
    return depths


def _stands_alone(lines: Sequence[str]) -> bool:
    depths = _depths(lines)
    return min(depths) == depths[-1] == 0 and not any(map(_LABEL.match, lines))


def _with_blocks(lines: Sequence[str], start: int, end: int) -> tuple[int, int]:
    """[start, end) to where its braces end, with the blocks around it: it may use variables of
    theirs."""
    depths = _depths(lines)
    depth = min(depths[start : end + 1])
    start, end = _around(depths, start, end, depth)
    while depth > 1:  # outside of the outermost all variables are registers
        depth -= 1
        first, last = _around(depths, start, end, depth)
        if last - first > _LONGEST or any(map(_LABEL.match, lines[first:last])):
            break
        start, end = first, last
    return start, end


def _around(depths: Sequence[int], start: int, end: int, depth: int) -> tuple[int, int]:
    return (
        next(i for i in range(start, -1, -1) if depths[i] == depth),
        next(i for i in range(end, len(depths)) if depths[i] == depth),
    )


def _combined(kernel: _Source, mutants: Sequence[_Source], changes: Sequence[_Change]) -> str:
    registers: dict[int, list[str]] = {}
    for key, (place, _) in kernel.declared.items():
        names = dict.fromkeys(n for source in (kernel, *mutants) for n in source.declared[key][1])
        registers.setdefault(place, []).append(f"{key.split()[0]} {', '.join(names)};")
    lines: list[str] = []
    done = 0

    def copy(end: int) -> None:
        for i in range(done, end):
            lines.extend([*registers.pop(i, ()), kernel.body[i]])
        lines.extend(registers.pop(end, ()))

    for group in _touching(changes):
        start, end = group[0].start, max(change.end for change in group)
        copy(start)
        for change in group:
            before, after = kernel.body[start : change.start], kernel.body[change.end : end]
            lines += [
                f"if (mutant == {change.number}) {{",
                *before,
                *change.lines,
                *after,
                "} else",
            ]
        lines += ["{", *kernel.body[start:end], "}"]
        done = end
    copy(len(kernel.body))
    # Every branch may have its operands at a place of its own.
    stack = 2 * max(source.stack for source in (kernel, *mutants))
    numbers = ", ".join(map(str, [len(changes), *(change.number for change in changes)]))
    told = f"{_SEEN} unsigned mutant = 0; {_SEEN} const unsigned planted[] = {{{numbers}}};"
    return "\n".join([told, kernel.head, *lines, kernel.tail.replace("STACK", str(stack))])


def _touching(changes: Sequence[_Change]) -> list[list[_Change]]:
    groups: list[list[_Change]] = []
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        if groups and change.start <= max(other.end for other in groups[-1]):
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _all_in_one(ptx: str, entry: str, mutants: Sequence[str]) -> str:
    kernel = _Source.of(kernel_source(ptx, entry))
    sources = [_Source.of(kernel_source(text, entry)) for text in mutants]
    found = [_change(number, kernel, source) for number, source in enumerate(sources)]
    changes = [change for change in found if change]
    return _combined(kernel, [sources[change.number] for change in changes], changes)


def _library(ptx: str, entry: str, mutants: Sequence[str]) -> Path:
    """Translated and compiled when a text, the translator or the runtime is another."""
    folder = Path(flash_helpers.emulator.__file__).parent
    made_by = [path.read_text() for path in (Path(__file__), *sorted(folder.rglob("*.py")))]

    def build(into: Path) -> None:
        runtime().compile_source(_all_in_one(ptx, entry, mutants), into)

    return kept("mutants", ".so", [runtime().key, *made_by, entry, ptx, *mutants], build)


def _planted(built: Path) -> list[int]:
    """The numbers of the mutants that the library has; the first says how many."""
    library = ctypes.CDLL(str(built))
    count = ctypes.c_uint.in_dll(library, "planted").value
    return list((ctypes.c_uint * (count + 1)).in_dll(library, "planted"))[1:]


@contextmanager
def compiled_together(ptx: str, entry: str, mutants: Sequence[str]) -> Iterator[list[str]]:
    """Inside, the emulator has libraries of these texts, but for those given back: more differs in
    them, and each must be compiled."""
    built = _library(ptx, entry, mutants)
    libraries: dict[str, ctypes.CDLL] = {}
    with tempfile.TemporaryDirectory(prefix="flash-mutants-") as folder:
        for number in _planted(built):
            library = ctypes.CDLL(str(shutil.copy(built, Path(folder, f"{number}.so"))))
            ctypes.c_uint.in_dll(library, "mutant").value = number
            libraries[mutants[number]] = library
    compile_kernel = Runtime.compile_kernel

    def from_here(self: Runtime, ptx: str, entry: str, counting: bool = False) -> ctypes.CDLL:
        found = None if counting else libraries.get(ptx)
        return found or compile_kernel(self, ptx, entry, counting)

    with patch.object(Runtime, "compile_kernel", from_here):
        yield [text for text in mutants if text not in libraries]
