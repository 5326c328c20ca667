"""One number in, one number out: the kernels of all elementwise operators.

A program computes BLOCK elements. `flat` takes tensors that lie in memory without gaps in the same
order, `strided` any others, of up to four dimensions.
"""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..activations import activate, derivative


@triton.jit
def combine(x, y, alpha, KIND: tl.constexpr, GRAD: tl.constexpr):
    """What the operator makes of an element of each operand; GRAD: y is the gradient of the
    result. All but the sum of two tensors is computed in fp32 and rounded once, when it is
    stored."""
    if KIND == "add":
        z = x + y  # one rounding too, in the tensors' own type
    elif KIND == "add_scalar":
        z = x.to(tl.float32) + alpha
    elif GRAD:
        z = derivative(x.to(tl.float32), KIND) * y.to(tl.float32)
    else:
        z = activate(x.to(tl.float32), KIND, x.dtype == tl.float32)
    return z


@triton.jit(do_not_specialize=["n"])
def flat(x, y, out, n, alpha, KIND: tl.constexpr, GRAD: tl.constexpr, BLOCK: tl.constexpr):
    """`n` elements. A mask would forbid loads of 16 bytes unless Triton knew n to be a multiple of
    16; so whole blocks have none, and one kernel serves every n."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    left = n - start
    at = start + tl.arange(0, BLOCK)
    if left >= BLOCK:
        a = tl.load(x + at)
        b = a
        if GRAD or KIND == "add":
            b = tl.load(y + at)
        tl.store(out + at, combine(a, b, alpha, KIND, GRAD))
    else:
        inside = tl.arange(0, BLOCK) < left
        a = tl.load(x + at, mask=inside)
        b = a
        if GRAD or KIND == "add":
            b = tl.load(y + at, mask=inside)
        tl.store(out + at, combine(a, b, alpha, KIND, GRAD), mask=inside)


NUMBERS = [
    "n", "n1", "n2", "n3", "x0", "x1", "x2", "x3", "y0", "y1", "y2", "y3",
    "out0", "out1", "out2", "out3",
]  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def strided(
    x, y, out, n, n1, n2, n3, x0, x1, x2, x3, y0, y1, y2, y3, out0, out1, out2, out3, alpha,
    KIND: tl.constexpr, GRAD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`n` elements of a tensor of n1, n2 and n3 in its inner dimensions, and the strides of all
    four. WIDE: some element lies beyond what 32 bits reach."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WIDE:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    i3 = at % n3
    rest = at // n3
    i2 = rest % n2
    rest = rest // n2
    i1 = rest % n1
    i0 = rest // n1
    a = tl.load(x + (i0 * x0 + i1 * x1 + i2 * x2 + i3 * x3), mask=inside)
    b = a
    if GRAD or KIND == "add":
        b = tl.load(y + (i0 * y0 + i1 * y1 + i2 * y2 + i3 * y3), mask=inside)
    place = i0 * out0 + i1 * out1 + i2 * out2 + i3 * out3
    tl.store(out + place, combine(a, b, alpha, KIND, GRAD), mask=inside)
