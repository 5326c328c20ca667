"""Micro-kernels of wgmma: one warpgroup a block, operands at fixed places of shared memory.

The tiles are random bits of finite numbers: what a descriptor makes of them shows which bytes it
names. Sets of special numbers follow those of the warp-wide mma.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...conformance.micro_kernel import Case
from ...conformance.values import random_bits
from ...conformance.warp_kernels import MMA_MORE_SETS, MMA_SETS, operand_bits
from .hopper_kernel import HopperKernels, hopper_entry

THREADS = 128
TILE_BYTES = 32768
A_START, B_START = 0, 12288
A_WORDS, C_WORDS = 4, 128  # of a thread
COLUMNS = (48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 256)  # of the attention kernels
SWIZZLE_BITS = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Operand:
    """A descriptor: byte offset in the tile, leading and stride byte offsets, swizzle."""

    start: int
    leading: int
    stride: int
    swizzle: int
    transposed: bool = False

    @property
    def bits(self) -> int:
        """Without the address of the tile itself."""
        return (
            self.start >> 4
            | self.leading >> 4 << 16
            | self.stride >> 4 << 32
            | SWIZZLE_BITS[self.swizzle] << 62
        )


def operand(swizzle: int, transposed: bool, start: int) -> Operand:
    """With strides that leave holes wherever they may."""
    if swizzle == 0:
        # Pieces of 8 rows by 16 bytes: those along K, or 8 rows of K apart, lie side by side.
        return Operand(start, 128, 2 * 128 + 128, 0, transposed)
    atom = 8 * swizzle
    if not transposed:
        return Operand(start, 0, atom, swizzle)
    # Neighbours along K lie an atom apart, chunks of M or N two.
    return Operand(start, 2 * atom, atom, swizzle, True)


@dataclass(frozen=True)
class Form:
    kind: str  # f16 or bf16
    columns: int
    a: Operand | None  # None: in registers
    b: Operand
    accumulates: bool = True
    signs: tuple[int, int] = (1, 1)
    name: str = ""

    @property
    def opcode(self) -> str:
        return f"wgmma.mma_async.sync.aligned.m64n{self.columns}k16.f32.{self.kind}.{self.kind}"

    @property
    def key(self) -> str:
        def of(item: Operand | None) -> str:
            return "registers" if item is None else f"{item}"

        return (
            f"{self.opcode} {of(self.a)} {of(self.b)} {self.accumulates} {self.signs} {self.name}"
        )

    def text(self) -> str:
        registers = ", ".join(f"d{i}" for i in range(self.columns // 2))
        immediates = [*self.signs, *([int(self.a.transposed)] if self.a else []),
                      int(self.b.transposed)]  # fmt: skip
        a = "da" if self.a else "{%a0, %a1, %a2, %a3}"
        lines = [f"add.u64 db, %tile64, {self.b.bits};"]
        if self.a:
            lines.append(f"add.u64 da, %tile64, {self.a.bits};")
        lines += [
            f"setp.ne.u32 p, {int(self.accumulates)}, 0;",
            "wgmma.fence.sync.aligned;",
            f"{self.opcode} {{{registers}}}, {a}, db, p, {', '.join(map(str, immediates))};",
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
        ]
        return "\n".join(lines)


def layout_forms() -> list[Form]:
    a, b = operand(128, False, A_START), operand(128, False, B_START)
    forms = []
    for swizzle in (0, 32, 64, 128):
        for ta in (False, True):
            for tb in (False, True):
                forms.append(Form("f16", 64, operand(swizzle, ta, A_START),
                                  operand(swizzle, tb, B_START)))  # fmt: skip
        for tb in (False, True):
            forms.append(Form("bf16", 32, None, operand(swizzle, tb, B_START)))
    for columns in (8, 16, 24, *COLUMNS):
        forms.append(Form("f16", columns, a, operand(64, False, B_START)))
    for columns in (8, 40, *COLUMNS):
        swizzle = next(s for s in (128, 64, 32, 0) if s == 0 or columns * 2 % s == 0)
        forms.append(Form("bf16", columns, None, operand(swizzle, True, B_START)))
    for step in (1, 2, 3):  # the k-steps within a swizzled row, and those of a transposed tile
        forms.append(Form("f16", 64, Operand(A_START + 32 * step, 0, 1024, 128),
                          Operand(B_START + 32 * step, 0, 1024, 128)))  # fmt: skip
        forms.append(Form("f16", 64, None, Operand(B_START + 2048 * step, 8192, 1024, 128, True)))
    forms += [
        Form("f16", 64, a, b, accumulates=False),
        Form("f16", 64, a, b, signs=(-1, 1)),
        Form("bf16", 64, a, b, signs=(1, -1)),
        Form("bf16", 64, None, b, accumulates=False, signs=(-1, -1)),
    ]
    return forms


def _finite(bits: Any, kind: str) -> Any:
    """Random bits as numbers between 2^-4 and 2^4 of both signs."""
    bias, width = (15, np.uint16(10)) if kind == "f16" else (127, np.uint16(7))
    exponents = np.uint16(bias - 4) + (bits >> width) % np.uint16(8)
    fraction = np.uint16((1 << int(width)) - 1)
    return bits & (np.uint16(0x8000) | fraction) | exponents << width


def _inputs(tile: Any, a: Any, c: Any) -> Any:
    return np.concatenate([tile.view(np.uint8), a.view(np.uint8), c.view(np.uint8)])


SET_BYTES = TILE_BYTES + 4 * THREADS * (A_WORDS + C_WORDS)

# Every block fills its tile and its A registers from its own set of inputs.
_PREAMBLE = f"""
.shared .align 1024 .b8 tile[{TILE_BYTES}];
.reg .b32 %base, %word, %at32, %a<4>; .reg .b64 %tile64, %set; .reg .pred %more;
mov.u32 %base, tile;
mul.wide.u32 %set, %block32, {SET_BYTES}; add.u64 %set, %set, %in;
mov.u32 %at32, %tid32;
FILL:
mad.wide.u32 %at0, %at32, 4, %set; ld.global.b32 %word, [%at0];
{{ .reg .b32 to; mad.lo.u32 to, %at32, 4, %base;
st.shared.b32 [to], %word; }}
add.u32 %at32, %at32, {THREADS}; setp.lt.u32 %more, %at32, {TILE_BYTES // 4}; @%more bra FILL;
fence.proxy.async; bar.sync 0;
shr.u32 %at32, %base, 4; cvt.u64.u32 %tile64, %at32;
mad.wide.u32 %at1, %tid32, {4 * A_WORDS}, %set;
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%at1+{TILE_BYTES}];
mad.wide.u32 %at2, %tid32, {4 * C_WORDS}, %set;
"""


def _kernels(entry: str, forms: list[Form], sets: list[Any]) -> HopperKernels:
    grid = len(sets)
    cases = [
        Case(form.key, form.opcode, form.text(), "f4", grid * THREADS * form.columns // 2)
        for form in forms
    ]
    kernels = HopperKernels(
        entry, "", np.concatenate(sets), cases, grid, THREADS, preamble=_PREAMBLE
    )
    bodies = [_body(form, kernels.offsets[form.key]) for form in forms]
    kernels.ptx = hopper_entry(entry, _PREAMBLE + "\n".join(bodies))
    return kernels


def _body(form: Form, place: int) -> str:
    count = form.columns // 2
    c_start = TILE_BYTES + 4 * THREADS * A_WORDS
    lines = [f"{{ .reg .b64 da, db, o; .reg .f32 d<{count}>; .reg .pred p;"]
    lines += [f"ld.global.f32 d{i}, [%at2+{c_start + 4 * i}];" for i in range(count)]
    lines += [form.text(), f"mad.wide.u32 o, %t, {4 * count}, %out;"]
    lines += [f"st.global.f32 [o+{place + 4 * i}], d{i};" for i in range(count)]
    return "\n".join([*lines, "}"])


def layout_kernels() -> list[HopperKernels]:
    kernels = []
    for kind in ("f16", "bf16"):
        forms = [form for form in layout_forms() if form.kind == kind]
        tile = _finite(random_bits(70, TILE_BYTES // 2).astype(np.uint16), kind)
        a = _finite(random_bits(71, 2 * THREADS * A_WORDS).astype(np.uint16), kind)
        c = operand_bits("normal", "f32", "c", 72, THREADS * C_WORDS)
        kernels.append(_kernels(f"wgmma_layouts_{kind}", forms, [_inputs(tile, a, c)]))
    return kernels


def value_kernels() -> list[HopperKernels]:
    """Sums of special numbers: A from registers and B from shared memory, and both from there."""
    kernels = []
    for kind in ("f16", "bf16"):
        b = operand(128, False, B_START)
        forms = [
            Form(kind, 32, None, b, name="values"),
            Form(kind, 32, operand(128, False, A_START), b, name="values"),
        ]
        sets = []
        for number, what in enumerate([*MMA_SETS, *MMA_MORE_SETS]):
            seed = 3000 + 100 * number + 10 * (kind == "bf16")
            tile = operand_bits(what, kind, "b", seed, TILE_BYTES // 2)
            tile[: B_START // 2] = operand_bits(what, kind, "a", seed + 1, B_START // 2)
            a = operand_bits(what, kind, "a", seed + 2, 2 * THREADS * A_WORDS)
            c = operand_bits(what, kind, "c", seed + 3, THREADS * C_WORDS)
            if what == "cancel":  # the last products are the negatives of the first
                half = a.reshape(THREADS, 2, 4)
                half[:, 1] = half[:, 0] ^ a.dtype.type(0x8000)
                rows = tile.reshape(-1, 64)  # of the swizzled tile: pieces of 8 are permuted
                for row in range(len(rows)):
                    pieces = rows[row].reshape(8, 8)
                    first, second = (0 ^ row % 8), (1 ^ row % 8)
                    sign = 0x8000 if row < A_START // 128 + 64 else 0
                    pieces[second] = pieces[first] ^ a.dtype.type(sign)
            sets.append(_inputs(tile, a, c))
        kernels.append(_kernels(f"wgmma_values_{kind}", forms, sets))
    return kernels
