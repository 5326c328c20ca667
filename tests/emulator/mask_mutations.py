"""Planted bugs in what the general kernels do beyond the others: bounds of copies and stores,
masks, rows that see no key, and the arithmetic of block ranges."""

from __future__ import annotations

import re

from flash_helpers.emulator.door.source_lines import SourceLines

from .mutations import Mutant, mutants_of_lines

BOUNDS = ("bounds.cuh", "visible.cuh")  # the headers with the arithmetic
_REGISTERS = r"(%\w+), (%\w+), (%\w+|-?\d+)"


def unbounded_copies(ptx: str) -> list[Mutant]:
    """A copy that reads rows beyond the end, and one that reads none."""
    size = r"selp\.b32\s+(%\w+), 16, 0, %\w+;"
    registers = r"@%p\d+ bra.*"  # through registers: the branch around a load
    found = [
        mutant
        for name, n_bytes in (("copy reads beyond the end", 16), ("copy reads nothing", 0))
        for mutant in mutants_of_lines(
            ptx,
            name,
            size,
            lambda line, n=n_bytes: re.sub(size, rf"mov.b32 \1, {n};", line),  # type: ignore[misc]
        )
    ]
    lines = ptx.splitlines()
    guarded = {i + 1 for i in range(len(lines) - 6) if _guards(lines[i : i + 7], "ld.global.v4")}
    dropped = mutants_of_lines(ptx, "load reads beyond the end", registers, lambda line: "")
    return found + [mutant for mutant in dropped if mutant.line in guarded]


def unbounded_stores(ptx: str) -> list[Mutant]:
    """The branch around a store of a row that may not exist, dropped."""
    lines = ptx.splitlines()
    guarded = {i + 1 for i in range(len(lines) - 16) if _guards(lines[i : i + 17], "st.global")}
    dropped = mutants_of_lines(ptx, "store beyond the end", r"@%p\d+ bra.*", lambda line: "")
    return [mutant for mutant in dropped if mutant.line in guarded]


def _guards(lines: list[str], access: str) -> bool:
    """Whether lines begin with a branch to a label behind the next access of this kind."""
    match = re.search(r"@%p\d+ bra\s+(\$\w+);", lines[0])
    if match is None:
        return False
    for line in lines[1:]:
        if line.startswith(match[1] + ":") or " bra" in line:
            return False
        if access in line:
            return True
    return False


def wrong_masks(ptx: str, count: int) -> list[Mutant]:
    """A key too many, a score not masked, and a row without keys whose maximum stays -inf."""

    def one_more(line: str) -> str:
        return line.replace("setp.gt", "setp.ge")

    def unmasked(line: str) -> str:
        return re.sub(r"selp\.f32\s+(%\w+), (%\w+),.*", r"mov.f32 \1, \2;", line)

    def unguarded(line: str) -> str:
        return re.sub(r"selp\.f32\s+(%\w+), 0f00000000, (%\w+),.*", r"mov.f32 \1, \2;", line)

    compare = r"setp\.gt\.s32\s+%\w+, %\w+, \d+;"
    masked = r"selp\.f32\s+%\w+, %\w+, 0fFF800000, %\w+;"
    guard = r"selp\.f32\s+%\w+, 0f00000000, %\w+, %\w+;"
    return [
        *mutants_of_lines(ptx, "a key too many", compare, one_more, count),
        *mutants_of_lines(ptx, "score not masked", masked, unmasked, count),
        *mutants_of_lines(ptx, "maximum of no keys", guard, unguarded),
    ]


def wrong_bounds(ptx: str) -> list[Mutant]:
    """The arithmetic of bounds and of what is visible: a term left out, a limit left out, causal
    misread."""
    places = SourceLines(ptx)

    def first_term(line: str) -> str:
        return re.sub(rf"\w+\.[su]32\s+{_REGISTERS};", r"mov.b32 \1, \2;", line)

    def negated(line: str) -> str:
        return (
            line.replace("setp.ne", "setp.xx").replace("setp.eq", "setp.ne").replace(".xx", ".eq")
        )

    found = [
        *mutants_of_lines(ptx, "term left out", rf"(?:add|sub)\.s32\s+{_REGISTERS};", first_term),
        *mutants_of_lines(
            ptx, "limit left out", rf"(?:min|max)\.[su]32\s+{_REGISTERS};", first_term
        ),
        *mutants_of_lines(ptx, "causal misread", r"setp\.(?:eq|ne)\.s32\s+%\w+, %\w+, 0;", negated),
    ]
    return [m for m in found if str(places.locate(m.line)).split(":")[0].endswith(BOUNDS)]


def bounds_and_masks(ptx: str, count: int) -> list[Mutant]:
    """`count`: how many of the mask's mutants of each kind."""
    return [
        *unbounded_copies(ptx),
        *unbounded_stores(ptx),
        *wrong_masks(ptx, count),
        *wrong_bounds(ptx),
    ]
