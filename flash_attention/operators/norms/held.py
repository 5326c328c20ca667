"""LayerNorm and RMSNorm of rows, forward, without a residual, for rows that fit into registers as
they are stored (row_softmax/held.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.held import as_stored, taken
from ..rows.ring import started, wait_group


@gluon.jit
def mean_of(v, columns):
    """Over lanes, so nothing is fused into the sum."""
    return gl.sum(gl.sum(v, 1), 0) / columns.to(gl.float32)


@gluon.jit(do_not_specialize=["rows", "columns", "x_row", "residual_row", "out_row"])
def forward(
    x, residual, weight, bias, out, total, mean, rstd,
    rows, columns, x_row, residual_row, out_row, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr,
    HELD: gl.constexpr, STREAM: gl.constexpr,
):  # fmt: skip
    """As norms/kernels.py; HELD and STREAM are those of other kernels."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    ring = started(x, rows, columns, x_row, BLOCK, SLOTS, HELD)
    column = ring.column(0)
    for row in range(gl.program_id(0), rows, gl.num_programs(0)):
        load = (row - gl.program_id(0)) // gl.num_programs(0)
        wait_group(SLOTS - 1)
        v, inside = taken(ring, load)
        ring.fill(load + SLOTS)
        m = 0.0
        if LAYER:
            m = mean_of(v.to(gl.float32), columns)
        away = gl.where(inside, as_stored(v).to(gl.float32) - m, 0.0)
        r = gl.rsqrt(mean_of(gl.fma(away, away, 0.0), columns) + eps)
        y = (as_stored(v).to(gl.float32) - m) * r
        if WEIGHT:
            y *= gl.load(weight + column, mask=inside, other=0.0).to(gl.float32)
        if BIAS:
            y += gl.load(bias + column, mask=inside, other=0.0).to(gl.float32)
        out_at = out + row.to(gl.int64) * out_row
        gl.store(out_at + column, y.to(out.dtype.element_ty), mask=inside)
        if STATISTICS:
            if LAYER:
                gl.store(mean + row, m)
            gl.store(rstd + row, r)
    wait_group(0)
