"""Micro-kernels of instructions on registers, made from their forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .micro_kernel import Case, MicroKernels, entry_text, words
from .scalar_forms import (
    BINARY,
    FROM_TRITON,
    FROM_TRITON_SM90,
    SPECIAL,
    TERNARY,
    TRITON_SPECIAL,
    TRITON_SPECIAL_SM90,
    UNARY,
)
from .values import OPERANDS, N

BLOCK = 128
# PTX type: (register class of an operand, .reg type of the result, how results are compared)
_KINDS = {
    **{f"{k}{bits}": (letter, f"b{bits}", f"u{bits // 8}")
       for k in "bsu" for bits, letter in ((16, "h"), (32, "r"), (64, "x"))},
    **{f"{k}8": ("r", "b32", "u4") for k in "bsu"},
    "f32": ("f", "f32", "f4"),
    "f64": ("d", "f64", "f8"),
    "f16": ("h", "b16", "u2"),
    "bf16": ("h", "b16", "u2"),
    "f16x2": ("v", "b32", "u4"),
    "bf16x2": ("v", "b32", "u4"),
    "tf32": ("f", "b32", "u4"),
    "pred": ("q", "pred", "u4"),
}  # fmt: skip
_REGISTERS = {"r": "b32", "x": "b64", "f": "f32", "d": "f64", "h": "b16", "v": "b32"}
_BYTES = {kind: operands[0].itemsize for kind, operands in OPERANDS.items()}

# Units in the last place between the emulator, which rounds (nearly) correctly, and the hardware:
# the maximum errors that the PTX ISA and the CUDA programming guide state, plus 1 for ours.
# Seen on the H200: ex2 2, rcp 1, rsqrt 2, sqrt 1, div.full 2.
BOUNDS = {
    "ex2": 3, "lg2": 3, "rcp.approx": 2, "rsqrt": 3, "sqrt.approx": 4, "div.full": 3,
}  # fmt: skip
# These state an absolute error (2^-20.9 for sine and cosine, 2^-21.4 for lg2 between 0.5 and 2) or
# a relative one above an ulp (2^-11 for tanh): see compare.py.
ABSOLUTE = {"sin": 2.0**-20, "cos": 2.0**-20, "lg2": 2.0**-21, "tanh": 2.0**-10.5}


def _bound(form: str) -> float:
    default = 1 if form.split(".")[0] in ABSOLUTE else 0
    return max((ulp for start, ulp in BOUNDS.items() if form.startswith(start)), default=default)


def _operands(form: str, count: int) -> tuple[str, str, str]:
    """Operands, .reg type of the result and its dtype, from the opcode and the types at the end."""
    parts = form.split(".")
    opcode = parts[0]
    letter, register, dtype = _KINDS[parts[-1]]
    names = [f"%{letter}{j}" for j in "abc"[:count]]
    if opcode == "cvt":
        register, dtype = _KINDS[parts[-2]][1:]
    elif opcode == "setp":
        register, dtype = _KINDS["pred"][1:]
    elif opcode in ("popc", "clz"):
        register, dtype = _KINDS["b32"][1:]
    elif "wide" in parts:
        wide, register, dtype = _KINDS[f"u{2 * int(parts[-1][1:])}"]
        names[2:] = [f"%{wide}c"] * (count - 2)
    elif opcode in ("shl", "shr"):
        names[1] = "%rb"
    elif opcode == "bfe":
        names[1:] = ["%rb", "%rc"]
    elif opcode == "selp":
        names[2] = "%qa"
    return ", ".join(names), register, dtype


def _case(form: str, count: int) -> Case:
    operands, register, dtype = _operands(form, count)
    text = f"{form} $d, {operands};"
    if register == "pred":
        text = f"{{ .reg .pred p; {form} p, {operands}; selp.b32 $d, 1, 0, p; }}"
        register = "b32"
    exact = words("mov selp cvt copysign") + ["min", "max"] * (dtype == "f4")
    computed = dtype in ("f4", "f8") and form.split(".")[0] not in exact
    return Case(form, form, f".reg .{register} d; {text}".replace("$d", "d"), dtype, N,
                _bound(form), computed)  # fmt: skip


def _special(key: str, form: str, ptx: str, letter: str, register: str) -> Case:
    for j in "abc":
        ptx = ptx.replace(f"${j}", f"%{letter}{j}")
    dtype = _KINDS[register][2]
    return Case(key, form, f".reg .{register} d; {ptx}".replace("$d", "d"), dtype, N)


def scalar_cases() -> list[Case]:
    simple = [(UNARY, 1), (BINARY, 2), (TERNARY, 3)]
    return [
        *(_case(form, count) for forms, count in simple for form in forms),
        *(_special(*row) for row in SPECIAL),
    ]


def triton_cases() -> list[Case]:
    """Of forms that only Triton writes."""
    return [
        *(_case(form, count) for forms, count in FROM_TRITON for form in forms),
        *(_special(*row) for row in TRITON_SPECIAL),
    ]


def triton_sm90_cases() -> list[Case]:
    return [
        *(_case(form, count) for forms, count in FROM_TRITON_SM90 for form in forms),
        *(_special(*row) for row in TRITON_SPECIAL_SM90),
    ]


def scalar_prologue() -> tuple[str, Any]:
    """Loads %ra, %rb, ..., %vc, makes the predicates; and the array of all the inputs."""
    lines, arrays, offset = [], [], 0
    for kind, operands in OPERANDS.items():
        bits = 8 * _BYTES[kind]
        names = ", ".join(f"%{kind}{j}" for j in "abc")
        lines.append(f".reg .{_REGISTERS[kind]} {names};")
        lines.append(f"mad.wide.u32 %at0, %t, {bits // 8}, %in;")
        for j, operand in zip("abc", operands, strict=True):
            lines.append(f"ld.global.b{bits} %{kind}{j}, [%at0+{offset}];")
            arrays.append(operand.view(np.uint8))
            offset += operand.nbytes
    lines.append(
        ".reg .pred %qa, %qb, %qrare, %qwarp; .reg .b32 %u; "
        "popc.b32 %u, %rc; and.b32 %u, %u, 1; setp.ne.u32 %qa, %u, 0; "
        "and.b32 %u, %rb, 1; setp.ne.u32 %qb, %u, 0; "
        "and.b32 %u, %t, 127; setp.eq.u32 %qrare, %u, 5; "  # one lane of one warp in four
        "and.b32 %u, %t, 32; setp.ne.u32 %qwarp, %u, 0;"  # all lanes of every other warp
    )
    return "\n".join(lines), np.concatenate(arrays)


def scalar_kernels(per_entry: int = 96) -> list[MicroKernels]:
    """All scalar micro-kernels, some 96 an entry, which compile in parallel."""
    cases = scalar_cases()
    starts = range(0, len(cases), per_entry)
    parts = {f"scalar_{first // per_entry}": cases[first : first + per_entry] for first in starts}
    parts["scalar_triton"] = triton_cases()
    prologue, inputs = scalar_prologue()
    kernels = []
    for entry, part in parts.items():
        kernel = MicroKernels(entry, "", inputs, part, N // BLOCK, BLOCK, preamble=prologue)
        kernel.ptx = entry_text(entry, scalar_text(kernel, prologue))
        kernels.append(kernel)
    return kernels


def scalar_text(kernels: MicroKernels, prologue: str) -> str:
    """The body of an entry."""
    lines = [prologue]
    for case in kernels.cases:
        size = np.dtype(case.dtype).itemsize
        place = f"[%o{size}+{kernels.offsets[case.key]}]"
        lines.append(f"{{ {case.text} st.global.b{8 * size} {place}, d; }}")
    return "\n".join(lines)
