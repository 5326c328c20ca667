"""Softmax of long rows and its logarithm, forward: the ring of rows/ring.py keeps loads under way
all the time. Every vector of a thread has a maximum of its own until the row's end."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.ring import started, vectors, wait_group

NUMBERS = ["rows", "columns", "x_row", "out_row"]


@gluon.jit
def finite(maximum):
    """What is subtracted before the exponential: where there is no number above -inf, nothing;
    otherwise -inf - -inf would hide that the sum is 0. NaN stays."""
    return gl.where(maximum == -float("inf"), 0.0, maximum)


@gluon.jit
def added(ring, load, block, top, total):
    """(maximum, sum of exponentials) of each vector, with one more block."""
    v, inside = ring.read(load, block)
    v = gl.where(inside, v, -float("inf"))
    higher = gl.maximum(top, gl.max(v, 1))  # without NaN, which the sum keeps
    below = finite(higher)
    weights = gl.sum(gl.exp(v - below[:, None]), 1)
    return higher, total * gl.exp(top - below) + weights


@gluon.jit
def written(ring, load, block, out_at, most, total, LOG: gl.constexpr):
    v, inside = ring.read(load, block)
    y = v - most - gl.log(total) if LOG else gl.exp(v - most) * (1.0 / total)
    gl.store(out_at + ring.column(block), y.to(out_at.dtype.element_ty), mask=inside)


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, out, rows, columns, x_row, out_row, LOG: gl.constexpr, ONLINE: gl.constexpr,
    ALIGN: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr, HELD: gl.constexpr,
    STREAM: gl.constexpr,
):  # fmt: skip
    """STREAM: rows have more than HELD blocks."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    ring = started(x, rows, columns, x_row, BLOCK, SLOTS, HELD)
    vector: gl.constexpr = gl.SliceLayout(1, vectors(ring.VECTOR, gl.num_warps()))
    again = ring.again
    load = 0
    for row in range(gl.program_id(0), rows, gl.num_programs(0)):
        out_at = out + row.to(gl.int64) * out_row
        top = gl.full([BLOCK // ring.VECTOR], -float("inf"), gl.float32, vector)
        total = gl.zeros([BLOCK // ring.VECTOR], gl.float32, vector)
        if STREAM:
            for block in range(again):
                wait_group(SLOTS - 1)
                top, total = added(ring, load, block, top, total)
                ring.fill(load + SLOTS)
                load += 1
        wait_group(SLOTS - HELD)
        for i in range(HELD):
            top, total = added(ring, load + i, again + i, top, total)
        most = gl.max(top, 0)
        total = gl.sum(gl.fma(total, gl.exp(top - most), 0.0), 0)
        for i in range(HELD):
            written(ring, load, again + i, out_at, most, total, LOG)
            ring.fill(load + SLOTS)
            load += 1
        if STREAM:
            for block in range(again):
                wait_group(SLOTS - 1)
                written(ring, load, block, out_at, most, total, LOG)
                ring.fill(load + SLOTS)
                load += 1
    wait_group(0)
