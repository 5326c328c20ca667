"""Instructions that only Triton writes, against exact fractions and Python integers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from .conformance.emulated import outputs
from .conformance.suite import suite
from .conformance.values import OPERANDS
from .support import aligned, run_ptx


def answers(key: str) -> Any:
    (kernels,) = (kernels for kernels in suite() if kernels.entry == "scalar_triton")
    (case,) = (case for case in kernels.cases if case.key == key)
    return kernels.result(outputs()["scalar_triton"], case)


def widened(bits: Any) -> Any:
    """bf16 numbers as f32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(exact: Fraction) -> int:
    """The bf16 number that is nearest, ties to even."""
    if exact == 0:
        return 0
    sign, size = (0x8000, -exact) if exact < 0 else (0, exact)
    exponent = max(math.floor(math.log2(size)) if size > 2**-1000 else -1000, -126)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    while exponent > -126 and Fraction(2) ** exponent > size:
        exponent -= 1
    units = round(size / Fraction(2) ** (exponent - 7))  # Python's rounds ties to even
    return sign | min(((exponent + 126) << 7) + units, 0x7F80)


def fused(a: int, b: int, c: int) -> int | None:
    """None where an operand is not finite, or the sign of zero decides."""
    values = [float(x) for x in widened(np.array([a, b, c], np.uint16))]
    if not all(map(math.isfinite, values)):
        return None
    x, y, z = map(Fraction, values)
    return rounded(x * y + z) if x * y + z else None


def test_fma_of_bf16_is_rounded_once() -> None:
    results = answers("fma.rn.bf16")
    compared = 0
    for a, b, c, found in zip(*OPERANDS["h"], results, strict=True):
        if (expected := fused(int(a), int(b), int(c))) is not None:
            assert int(found) == expected, (hex(a), hex(b), hex(c))
            compared += 1
    assert compared > 300


@pytest.mark.parametrize("tiny", [0x0001, 0x8001, 0x3180, 0xB180], ids=hex)
@pytest.mark.parametrize("sign", [0, 0x8000])
def test_a_tie_is_broken_by_what_f64_cannot_hold(tiny: int, sign: int) -> None:
    """1.0078125 * 1.5 = 1.51171875 lies between two bf16 numbers; c is far below."""
    operands = aligned(3, np.uint16)
    operands[:] = 0x3F81 | sign, 0x3FC0, tiny
    result = aligned(1, np.uint16)
    run_ptx(
        "ld.global.b16 %h0, [%p0]; ld.global.b16 %h1, [%p0+2]; ld.global.b16 %h2, [%p0+4];"
        "fma.rn.bf16 %h3, %h0, %h1, %h2; setp.eq.u32 %q0, %t, 0; @%q0 st.global.b16 [%p1], %h3;",
        [operands, result],
    )
    assert int(result[0]) == fused(*map(int, operands))


def test_bytes_are_permuted() -> None:
    a, b, selectors = OPERANDS["r"]
    for x, y, selector, found in zip(a, b, selectors, answers("prmt.b32"), strict=True):
        pool = [*int(x).to_bytes(4, "little"), *int(y).to_bytes(4, "little")]
        picks = [int(selector) >> 4 * i & 15 for i in range(4)]
        taken = [255 * (pool[p & 7] >> 7) if p & 8 else pool[p] for p in picks]
        assert int(found) == int.from_bytes(bytes(taken), "little")


def test_halves_are_compared_apart() -> None:
    a, b = (operand.view(np.float16).reshape(-1, 2) for operand in OPERANDS["v"][:2])
    less = a < b
    found = answers("setp.lt.f16x2 pair")
    np.testing.assert_array_equal(found, less[:, 0] + 2 * less[:, 1])
