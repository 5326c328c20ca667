"""A row that one program computes, all of it or so many columns at a time, without masks where its
length is a multiple of these."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ...triton_kit.aggregates import aggregate
from .part import elements, held, vectors


@gluon.jit
def same(raw):
    """`raw`, which the compiler takes for other numbers: else it would hold those of fp32 that it
    made of them, in twice as many registers."""
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [raw], dtype=raw.dtype, is_pure=False,
        pack=32 // raw.dtype.primitive_bitwidth)  # fmt: skip


@aggregate
class Row:
    """The `index`-th row of matrices, of which a program takes BLOCK columns at a time, from
    `first` on, and a thread VECTOR elements at a time. FULL: no column is beyond the last."""

    index: gl.tensor
    columns: gl.tensor
    FULL: gl.constexpr
    BLOCK: gl.constexpr
    VECTOR: gl.constexpr

    @gluon.jit
    def vector(self, first):
        """Where each vector begins: its column."""
        return first + vectors(self.BLOCK, self.VECTOR)

    @gluon.jit
    def inside(self, first):
        """Whether a vector is of the row, whose length is a multiple of theirs."""
        return self.vector(first) < self.columns

    @gluon.jit
    def at(self, matrix, stride, first):
        return matrix + self.index * stride + elements(self.vector(first), self.VECTOR)

    @gluon.jit
    def once(self, x, stride, other: gl.constexpr):
        """All of the row, past the L1 cache; beyond the last column `other`."""
        if self.FULL:
            return gl.load(self.at(x, stride, 0), cache_modifier=".cg")
        inside = self.inside(0)
        return gl.load(self.at(x, stride, 0), mask=inside, other=other, cache_modifier=".cg")

    @gluon.jit
    def step(self, x, stride, first, other: gl.constexpr, KEPT: gl.constexpr):
        """BLOCK columns. KEPT: they are read once more, and meant to stay in the caches."""
        hint: gl.constexpr = "evict_last" if KEPT else "evict_first"
        at = self.at(x, stride, first)
        if self.FULL:
            return gl.load(at, eviction_policy=hint)
        return gl.load(at, mask=self.inside(first), other=other, eviction_policy=hint)

    @gluon.jit
    def shared(self, vector, first):
        """BLOCK elements of a vector that all rows have in common."""
        at = vector + elements(self.vector(first), self.VECTOR)
        if self.FULL:
            return gl.load(at)
        return gl.load(at, mask=self.inside(first), other=0.0)

    @gluon.jit
    def known(self, v, other):
        """`v`, of all of the row, but for columns beyond the last."""
        if self.FULL:
            return v
        return gl.where(self.inside(0), v, other)

    @gluon.jit
    def store(self, out, stride, first, y, CACHE: gl.constexpr):
        y = y.to(out.dtype.element_ty)
        if self.FULL:
            gl.store(self.at(out, stride, first), y, cache_modifier=CACHE)
        else:
            inside = self.inside(first)
            gl.store(self.at(out, stride, first), y, mask=inside, cache_modifier=CACHE)

    @gluon.jit
    def of_threads(self, value: gl.constexpr):
        """A number for each thread, as a sum of what it has is."""
        layout: gl.constexpr = gl.SliceLayout(
            0, gl.SliceLayout(2, held(self.VECTOR, gl.num_warps()))
        )
        return gl.full([32 * gl.num_warps()], value, gl.float32, layout)


@gluon.jit
def row_of(x, columns, FULL: gl.constexpr, BLOCK: gl.constexpr):
    """This program's row, of matrices of x's type."""
    return Row(
        index=gl.program_id(0).to(gl.int64), columns=columns, FULL=FULL, BLOCK=BLOCK,
        VECTOR=128 // x.dtype.element_ty.primitive_bitwidth)  # fmt: skip
