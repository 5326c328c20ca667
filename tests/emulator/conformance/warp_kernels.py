"""Micro-kernels of ldmatrix and mma: one warp a block, one block a set of operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .micro_kernel import Case, MicroKernels, entry_text
from .values import random_bits, random_f32

LANES = 32
# Sets of operands of an mma: what is in them, see `mma_inputs`.
MMA_SETS = [
    *("integers", "integers", "normal", "normal", "normal", "wide", "wide", "wide", "cancel"),
    *("cancel", "subnormal", "subnormal", "overflow", "special", "special", "bits"),
]
# In entries of their own: factors that are subnormal in their format, and zeros of both signs.
MMA_MORE_SETS = ["tiny a", "tiny a", "tiny b", "zeros"]
MMA_FORMS = {
    "f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "tf32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
}


def ldmatrix_kernels() -> MicroKernels:
    """Shared memory holds 2 KiB of random bits; every lane names a row, in random order."""
    data = random_bits(50, 256).view(np.uint32)
    rows = (random_bits(51, LANES * 3).astype(np.uint32) % np.uint32(128)) * np.uint32(16)
    cases, lines = [], []
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            form = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            registers = ", ".join(f"m{i}" for i in range(count))
            cases.append(Case(form, form, f"{form} {{{registers}}}, [at];", "u4", count * LANES))
    kernel = MicroKernels("ldmatrix", "", np.concatenate([data, rows]), cases)
    for case in cases:
        count = case.count // LANES
        index = "124".index(str(count))
        place = kernel.offsets[case.key]
        lines.append(
            f"{{ .reg .b32 m<4>, at; mad.wide.u32 %at0, %lane, 4, %in;"
            f"ld.global.b32 at, [%at0+{2048 + 128 * index}]; add.u32 at, at, %base; {case.text}"
        )
        lines += [f"st.global.b32 [%o4+{place + 128 * i}], m{i};" for i in range(count)]
        lines.append("}")
    fill = """.shared .align 128 .b8 rows[2048];
.reg .b32 %base, %row, %word;
mov.u32 %base, rows;
mad.lo.u32 %row, %lane, 4, %base;
mad.wide.u32 %at1, %lane, 4, %in;
""" + "\n".join(
        f"ld.global.b32 %word, [%at1+{i}]; st.shared.b32 [%row+{i}], %word;"
        for i in range(0, 2048, 128)
    )
    kernel.ptx = entry_text("ldmatrix", fill + "\nbar.sync 0;\n" + "\n".join(lines))
    return kernel


def _narrow(values: Any, kind: str) -> Any:
    """f32 to the bits of a 16-bit format, or to tf32 with garbage in the ignored bits."""
    if kind == "f32":
        return values.view(np.uint32)
    if kind == "f16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    if kind == "bf16":
        return (bits >> np.uint32(16)).astype(np.uint16)
    return (bits & np.uint32(0xFFFFE000)) | (bits >> np.uint32(9) & np.uint32(0x1FFF))


def _matrix(what: str, kind: str, seed: int, count: int) -> Any:
    """The elements of one operand, as bits of the format (or of f32, kind 'f32')."""
    noise = random_bits(seed + 7, count)
    if what == "integers":  # every partial sum is exact, in any order
        return _narrow((noise % np.uint64(63)).astype(np.float32) - np.float32(31), kind)
    if what == "wide":
        return _narrow(random_f32(seed, count, 12), kind)
    if what == "subnormal":  # and products of them
        scale = {"f16": 2.0**-19, "bf16": 2.0**-70, "tf32": 2.0**-70, "f32": 2.0**-132}[kind]
        return _narrow(random_f32(seed, count, 6) * np.float32(scale), kind)
    if what == "overflow":
        scale = {"f16": 2.0**11, "bf16": 2.0**60, "tf32": 2.0**60, "f32": 2.0**117}[kind]
        return _narrow(random_f32(seed, count, 4) * np.float32(scale), kind)
    if what == "bits":
        return noise.astype(np.uint16 if kind in ("f16", "bf16") else np.uint32)
    if what == "zeros":
        return _narrow(random_f32(seed, count, 2) * np.float32(0), kind)
    values = random_f32(seed, count, 2)
    if what == "special":  # a few infinities, NaN and zeros among numbers
        rare = noise % np.uint64(48)
        for pick, value in enumerate((np.inf, -np.inf, np.nan, 0.0, -0.0)):
            values[rare == pick] = np.float32(value)
    return _narrow(values, kind)


def _tiny(kind: str, role: str, seed: int, count: int) -> Any:
    """Factors from the smallest to the largest subnormal ("tiny"), other factors large enough for
    products to be normal in f32, and C of about the size of the products."""
    powers = {"tiny": -19, "large": 0, "c": -21} if kind == "f16" else {
        "tiny": -131, "large": 100, "c": -33}  # fmt: skip
    spread = 2 if role == "large" else 5
    values = random_f32(seed, count, spread).astype(np.float64) * 2.0 ** powers[role]
    return _narrow(values.astype(np.float32), "f32" if role == "c" else kind)


def operand_bits(what: str, kind: str, name: str, seed: int, count: int) -> Any:
    if what.startswith("tiny"):
        role = "c" if name == "c" else "tiny" if what.endswith(name) else "large"
        return _tiny(kind, role, seed, count)
    return _matrix(what, "f32" if name == "c" else kind, seed, count)


def mma_inputs(kind: str, sets: Sequence[str] = MMA_SETS) -> dict[str, Any]:
    """Per set: A as [lane][4] registers of 32 bits, B as [lane][2], C as [lane][4]."""
    per_register = 1 if kind == "tf32" else 2
    parts: dict[str, list[Any]] = {"a": [], "b": [], "c": []}
    for number, what in enumerate(sets, 0 if sets is MMA_SETS else 50):
        seed = 1000 + 100 * number + 10 * list(MMA_FORMS).index(kind)
        a = operand_bits(what, kind, "a", seed, LANES * 4 * per_register)
        b = operand_bits(what, kind, "b", seed + 1, LANES * 2 * per_register)
        c = operand_bits(what, kind, "c", seed + 2, LANES * 4)
        if what == "cancel":  # the last two columns of A are the negatives of the first two
            half = a.reshape(LANES, 4, per_register)
            half[:, 2:] = half[:, :2] ^ half.dtype.type(1 << (8 * a.itemsize - 1))
            b.reshape(LANES, 2, per_register)[:, 1] = b.reshape(LANES, 2, per_register)[:, 0]
        for name, values in zip("abc", (a, b, c), strict=True):
            parts[name].append(values.view(np.uint32))
    return {name: np.concatenate(values) for name, values in parts.items()}


def mma_kernels(kind: str, sets: Sequence[str] = MMA_SETS) -> MicroKernels:
    suffix = "" if sets is MMA_SETS else "_more"
    form = MMA_FORMS[kind]
    text = f"{form} {{d0, d1, d2, d3}}, {{a0, a1, a2, a3}}, {{b0, b1}}, {{c0, c1, c2, c3}};"
    inputs = mma_inputs(kind, sets)
    case = Case(form + suffix, form, text, "f4", len(sets) * LANES * 4)
    loads, start = [], 0
    for name, count in (("a", 4), ("b", 2), ("c", 4)):
        registers = ", ".join(f"{name}{i}" for i in range(count))
        loads.append(f"mad.wide.u32 %at0, %t, {4 * count}, %in;")
        loads.append(f"ld.global.v{count}.b32 {{{registers}}}, [%at0+{start}];")
        start += inputs[name].nbytes
    body = "\n".join([
        "{ .reg .b32 a<4>, b<2>; .reg .f32 c<4>, d<4>;",
        *[line.replace("v4.b32 {c", "v4.f32 {c") for line in loads],
        text,
        "mad.wide.u32 %at0, %t, 16, %out; st.global.v4.f32 [%at0], {d0, d1, d2, d3};",
        "}",
    ])  # fmt: skip
    entry = f"mma_{kind}{suffix}"
    array = np.concatenate(list(inputs.values()))
    return MicroKernels(entry, entry_text(entry, body), array, [case], len(sets), LANES)
