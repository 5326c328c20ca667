"""Softmax of rows and its logarithm, forward, for rows that fit into registers as they are stored:
whole rows come through the ring of rows/ring.py, and each leaves its place at once, so that the
next ones are loaded while it is computed."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.held import as_stored, taken
from ..rows.ring import started, wait_group

NUMBERS = ["rows", "columns", "x_row", "out_row"]


@gluon.jit
def over_row(v, most):
    """The exponentials of a row's elements."""
    return gl.exp(as_stored(v).to(gl.float32) - most)


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, out, rows, columns, x_row, out_row, LOG: gl.constexpr, ONLINE: gl.constexpr,
    ALIGN: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr, HELD: gl.constexpr,
    STREAM: gl.constexpr,
):  # fmt: skip
    """ONLINE, HELD and STREAM are those of the other kernels: here a row is one block."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    ring = started(x, rows, columns, x_row, BLOCK, SLOTS, HELD)
    for row in range(gl.program_id(0), rows, gl.num_programs(0)):
        load = (row - gl.program_id(0)) // gl.num_programs(0)
        wait_group(SLOTS - 1)
        v, inside = taken(ring, load)
        v = gl.where(inside, v, -float("inf"))
        ring.fill(load + SLOTS)
        # Without NaN, which the sum keeps. A row of -inf gives NaN, as -inf - -inf.
        most = gl.max(gl.max(v.to(gl.float32), 1), 0)
        total = gl.sum(gl.sum(over_row(v, most), 1), 0)
        if LOG:
            y = as_stored(v).to(gl.float32) - most - gl.log(total)
        else:
            y = over_row(v, most) * (1.0 / total)
        out_at = out + row.to(gl.int64) * out_row
        gl.store(out_at + ring.column(0), y.to(out.dtype.element_ty), mask=inside)
    wait_group(0)
