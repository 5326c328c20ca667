"""Rows in registers as they are stored: at 16 bits 65,536 elements take half of a multiprocessor's
registers, and widened all of them."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .ring import vectors


@gluon.jit
def taken(ring, load):
    """(the elements as they are stored, which of them there are) of a row that has arrived. Each
    thread reads what it loaded, so its place may be filled again."""
    layout: gl.constexpr = vectors(ring.VECTOR, gl.num_warps())
    return ring.places.index(load % ring.SLOTS).load(layout), ring.column(0) < ring.columns


@gluon.jit
def as_stored(v):
    """The same, and the compiler does not see it: it would keep what it widened before."""
    NARROW: gl.constexpr = v.dtype.primitive_bitwidth == 16
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [v], dtype=v.dtype, is_pure=False, pack=2 if NARROW else 1
    )
