"""Planted bugs: one PTX text to many, each with one line changed; lines keep their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    line: int
    ptx: str

    def __str__(self) -> str:
        return f"{self.name}, PTX line {self.line}"


def mutants_of_lines(
    ptx: str, name: str, pattern: str, edit: Callable[[str], str], count: int | None = None
) -> list[Mutant]:
    """The lines that hold `pattern`, edited in turn: all, or first, last and some between."""
    lines = ptx.splitlines()
    indices = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    if count is not None and len(indices) > count:
        indices = [indices[i * (len(indices) - 1) // (count - 1)] for i in range(count)]
    found = []
    for index in indices:
        changed = edit(lines[index])
        if changed == lines[index]:
            raise ValueError(f"{name} does not change {lines[index]!r}")
        text = "\n".join([*lines[:index], changed, *lines[index + 1 :]]) + "\n"
        found.append(Mutant(name, index + 1, text))
    return found


def removed(ptx: str, instruction: str) -> list[Mutant]:
    """Each occurrence of an instruction removed in turn."""
    pattern = rf"^\s*{re.escape(instruction)}\b"
    return mutants_of_lines(ptx, f"{instruction} removed", pattern, lambda line: "")


def swapped_mma_operands(ptx: str, first: int, second: int) -> list[Mutant]:
    """Two of an mma's registers exchanged: d0-3 are 0 to 3, a0-3 4 to 7, b0-1 8 and 9."""

    def swap(line: str) -> str:
        registers = re.findall(r"%\w+", line)
        registers[first], registers[second] = registers[second], registers[first]
        replacements = iter(registers)
        return re.sub(r"%\w+", lambda _: next(replacements), line)

    return mutants_of_lines(
        ptx, f"mma operands {first}, {second} swapped", r"^\s*mma\.sync", swap, 3
    )


def dropped_trans(ptx: str) -> list[Mutant]:
    def edit(line: str) -> str:
        return line.replace(".trans", "")

    return mutants_of_lines(ptx, ".trans dropped", r"ldmatrix.*\.trans", edit, 3)


def wrong_swizzle(ptx: str, count: int) -> list[Mutant]:
    """XORs of addresses: another constant, or an OR instead."""

    def other_constant(line: str) -> str:
        return re.sub(r", (\d+);", lambda m: f", {int(m[1]) ^ 16 or 32};", line)

    def made_or(line: str) -> str:
        return line.replace("xor.b32", "or.b32")

    constants = mutants_of_lines(ptx, "XOR constant", r"xor\.b32.*, \d+;", other_constant, count)
    return constants + mutants_of_lines(ptx, "XOR made OR", r"xor\.b32.*, %\w+;", made_or, count)


def off_by_one_row(ptx: str, row_bytes: int) -> list[Mutant]:
    """A copy from the next row of global memory, and a store to the next row."""

    def move(line: str) -> str:
        def add(match: re.Match[str]) -> str:
            return f"[{match[1]}+{int(match[2] or 0) + row_bytes}]"

        return re.sub(r"\[(%\w+)(?:\+(-?\d+))?\](?!.*\[)", add, line)  # the last address

    copies = mutants_of_lines(ptx, "copy from the next row", r"cp\.async.*global", move, 5)
    return copies + mutants_of_lines(ptx, "store to the next row", r"st\.global\.v4", move, 3)


def missing_scale(ptx: str) -> list[Mutant]:
    """The softmax scale's product with log2(e) replaced by a copy of the scale."""

    def copy(line: str) -> str:
        return re.sub(r"mul\.f32\s+(%\w+), (%\w+),.*", r"mov.f32 \1, \2;", line)

    return mutants_of_lines(ptx, "scale missing", r"mul\.f32.*0f3FB8AA3B", copy)


def swapped_conversion(ptx: str) -> list[Mutant]:
    def swap(line: str) -> str:
        return re.sub(r"(%\w+), (%\w+);", r"\2, \1;", line)

    return mutants_of_lines(ptx, "cvt operands swapped", r"cvt\.rn\.b?f16x2\.f32", swap, 4)


def shifted_shared_address(ptx: str) -> list[Mutant]:
    """Shared accesses 16 bytes off, in their destination where they have two addresses."""

    def move(line: str) -> str:
        return re.sub(
            r"\[(%\w+) \+ (\d+)\]", lambda m: f"[{m[1]} + {int(m[2]) + 16}]", line, count=1
        )

    opcodes = (r"ldmatrix", r"ld\.shared", r"st\.shared", r"cp\.async\.c[ag]\.shared")
    return [
        mutant
        for opcode in opcodes
        for mutant in mutants_of_lines(
            ptx, f"{opcode} 16 bytes off".replace("\\", ""), rf"{opcode}.*\[", move, 3
        )
    ]


def wrong_softmax(ptx: str) -> list[Mutant]:
    """Sums and maxima of a row over the wrong lanes, exponentials left out, factors exchanged."""

    def other_lanes(line: str) -> str:
        return line.replace(".bfly", ".idx")

    def identity(line: str) -> str:
        return re.sub(r"ex2\.approx\S*\s+", "mov.f32 ", line)

    def exchanged(line: str) -> str:
        return re.sub(r"(fma\.rn\.f32\s+%\w+), (%\w+), (%\w+), (%\w+)", r"\1, \2, \4, \3", line)

    return [
        *mutants_of_lines(ptx, "shuffle from other lanes", r"shfl\.sync\.bfly", other_lanes, 6),
        *mutants_of_lines(ptx, "exponential left out", r"ex2\.approx", identity, 6),
        *mutants_of_lines(
            ptx, "fma operands exchanged", r"fma\.rn\.f32\s+%\w+, %\w+, %\w+, %\w+;", exchanged, 4
        ),
    ]


def weakened_wait(ptx: str) -> list[Mutant]:
    """cp.async.wait_group that lets one group more be in flight."""

    def edit(line: str) -> str:
        return re.sub(r"wait_group (\d+)", lambda m: f"wait_group {int(m[1]) + 1}", line)

    return mutants_of_lines(ptx, "wait_group weakened", r"^\s*cp\.async\.wait_group", edit)


def weakened_atomics(ptx: str) -> list[Mutant]:
    """Atomic updates that order one side only, or nothing."""
    return [
        mutant
        for order in ("acquire", "release", "relaxed")
        for mutant in mutants_of_lines(
            ptx, f"atomic only {order}", r"atom\.acq_rel",
            lambda line, order=order: line.replace("acq_rel", order),  # type: ignore[misc]
        )
    ]  # fmt: skip


def synchronisation(ptx: str) -> list[Mutant]:
    instructions = ("cp.async.wait_group", "cp.async.commit_group", "bar.sync", "bar.warp.sync")
    removals = [mutant for name in instructions for mutant in removed(ptx, name)]
    return removals + weakened_wait(ptx) + weakened_atomics(ptx)


def arithmetic_and_addressing(ptx: str, row_bytes: int, n_swizzles: int) -> list[Mutant]:
    return [
        *swapped_mma_operands(ptx, 5, 6),
        *swapped_mma_operands(ptx, 8, 9),
        *dropped_trans(ptx),
        *wrong_swizzle(ptx, n_swizzles),
        *off_by_one_row(ptx, row_bytes),
        *missing_scale(ptx),
        *swapped_conversion(ptx),
        *shifted_shared_address(ptx),
        *wrong_softmax(ptx),
    ]
