"""A ring of places in shared memory, through which a program loads row after row, ahead of what it
computes: the loads of the next row are under way while one is reduced and written.

A row is several blocks. Its last ones (`HELD`, all of them where there is room) stay in their
places until they are read for the second time; those before them, if any, are loaded again, and
meant to come from the L2 cache then. Places become free in the order in which they were filled.
"""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from ...triton_kit.aggregates import aggregate

# triton 3.8 renamed the copy; 3.9 only raises an error under the old name.
if hasattr(async_copy, "async_load"):
    copy_async = async_copy.async_load
else:
    copy_async = async_copy.async_copy_global_to_shared
commit_group, wait_group = async_copy.commit_group, async_copy.wait_group


@aggregate
class Ring:
    """Of `SLOTS` places for BLOCK elements, of which a thread takes VECTOR at a time. `blocks` of a
    row, of which `again` are loaded twice."""

    places: gl.shared_memory_descriptor
    x: gl.tensor
    rows: gl.tensor
    columns: gl.tensor
    x_row: gl.tensor
    blocks: gl.tensor
    again: gl.tensor
    BLOCK: gl.constexpr
    VECTOR: gl.constexpr
    SLOTS: gl.constexpr

    @gluon.jit
    def column(self, block):
        """Of each element of a block."""
        layout: gl.constexpr = vectors(self.VECTOR, gl.num_warps())
        first = gl.arange(0, self.BLOCK // self.VECTOR, gl.SliceLayout(1, layout)) * self.VECTOR
        return block * self.BLOCK + (
            first[:, None] + gl.arange(0, self.VECTOR, gl.SliceLayout(0, layout))[None, :]
        )

    @gluon.jit
    def fill(self, load):
        """Begins the `load`-th load of this program; beyond the last row of nothing."""
        each = self.blocks + self.again
        row = gl.program_id(0) + load // each * gl.num_programs(0)
        part = load % each
        column = self.column(gl.where(part < self.blocks, part, part - self.blocks))
        at = self.x + (row.to(gl.int64) * self.x_row + column)
        there = column < gl.where(row < self.rows, self.columns, 0)
        copy_async(self.places.index(load % self.SLOTS), at, mask=there)
        commit_group()

    @gluon.jit
    def read(self, load, block):
        """(the elements, which of them there are) of a load that has arrived."""
        layout: gl.constexpr = vectors(self.VECTOR, gl.num_warps())
        v = self.places.index(load % self.SLOTS).load(layout).to(gl.float32)
        return v, self.column(block) < self.columns


@gluon.constexpr_function
def vectors(vector, warps):
    """A thread has all elements of a vector."""
    return gl.BlockedLayout([1, vector], [32, 1], [warps, 1], [1, 0])


@gluon.jit
def ring_of(x, rows, columns, x_row, BLOCK: gl.constexpr, SLOTS: gl.constexpr, HELD: gl.constexpr):
    """The ring, empty."""
    VECTOR: gl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    shape: gl.constexpr = [SLOTS, BLOCK // VECTOR, VECTOR]
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    blocks = gl.cdiv(columns, BLOCK)
    return Ring(
        places=gl.allocate_shared_memory(x.dtype.element_ty, shape, plain), x=x, rows=rows,
        columns=columns, x_row=x_row, blocks=blocks, again=gl.maximum(blocks - HELD, 0),
        BLOCK=BLOCK, VECTOR=VECTOR, SLOTS=SLOTS)  # fmt: skip


@gluon.jit
def started(x, rows, columns, x_row, BLOCK: gl.constexpr, SLOTS: gl.constexpr, HELD: gl.constexpr):
    """The ring, with its first loads under way."""
    ring = ring_of(x, rows, columns, x_row, BLOCK, SLOTS, HELD)
    for load in gl.static_range(SLOTS):
        ring.fill(load)
    return ring
