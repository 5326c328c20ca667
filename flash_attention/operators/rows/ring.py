"""A ring of places in shared memory, through which a program loads its part of row after row, ahead
of what it computes."""

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


@gluon.constexpr_function
def held(vector, warps):
    """Of a part, which is several times a vector for each thread: (times, threads, vector)."""
    return gl.BlockedLayout([1, 1, vector], [1, 32, 1], [1, warps, 1], [2, 1, 0])


@gluon.constexpr_function
def shape_of(block, vector, warps, *places):
    return [*places, block // (32 * warps * vector), 32 * warps, vector]


@gluon.jit
def each_sum(v):
    """Of what each thread holds."""
    return gl.sum(gl.sum(v, 2), 0)


@aggregate
class Ring:
    """Of SLOTS places for BLOCK elements, of which a thread takes VECTOR at a time: from column
    `first` on of every `groups`-th row, beginning with row `group`. FULL: there is no column beyond
    the last."""

    places: gl.shared_memory_descriptor
    x: gl.tensor
    rows: gl.tensor
    columns: gl.tensor
    x_row: gl.tensor
    group: gl.tensor
    groups: gl.tensor
    first: gl.tensor
    FULL: gl.constexpr
    BLOCK: gl.constexpr
    VECTOR: gl.constexpr
    SLOTS: gl.constexpr

    @gluon.jit
    def column(self):
        """Of each element."""
        THREADS: gl.constexpr = 32 * gl.num_warps()
        TIMES: gl.constexpr = self.BLOCK // (THREADS * self.VECTOR)
        layout: gl.constexpr = held(self.VECTOR, gl.num_warps())
        inner: gl.constexpr = gl.SliceLayout(0, layout)
        time = gl.arange(0, TIMES, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
        thread = gl.arange(0, THREADS, gl.SliceLayout(1, inner))
        one = gl.arange(0, self.VECTOR, gl.SliceLayout(0, inner))
        once = (thread * self.VECTOR)[:, None] + one[None, :]
        times = (time * (THREADS * self.VECTOR))[:, None]
        return self.first + (times[:, :, None] + once[None, :, :])

    @gluon.jit
    def row(self, load):
        return self.group + load * self.groups

    @gluon.jit
    def fill(self, load):
        """Begins the `load`-th load of this program; beyond the last row of nothing."""
        row, column = self.row(load), self.column()
        at = self.x + (row.to(gl.int64) * self.x_row + column)
        there = column < gl.where(row < self.rows, self.columns, 0)
        copy_async(self.places.index(load % self.SLOTS), at, mask=there)
        commit_group()

    @gluon.jit
    def arrived(self, load, LATER: gl.constexpr):
        """The elements of a load, as they are stored, behind which LATER were begun. Each thread
        reads what it loaded itself."""
        wait_group(LATER)
        return self.again(load)

    @gluon.jit
    def again(self, load):
        return self.places.index(load % self.SLOTS).load(held(self.VECTOR, gl.num_warps()))

    @gluon.jit
    def write(self, out, out_row, load, y):
        """Writes what was computed of a load."""
        column = self.column()
        at = out + (self.row(load).to(gl.int64) * out_row + column)
        if self.FULL:
            gl.store(at, y.to(out.dtype.element_ty))
        else:
            gl.store(at, y.to(out.dtype.element_ty), mask=column < self.columns)


@gluon.jit
def started(
    x, rows, columns, x_row, parts, FULL: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr
):  # fmt: skip
    """The ring of one of `parts` programs that share their rows, with its first loads under way."""
    VECTOR: gl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    shape: gl.constexpr = shape_of(BLOCK, VECTOR, gl.num_warps(), SLOTS)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    ring = Ring(
        places=gl.allocate_shared_memory(x.dtype.element_ty, shape, plain), x=x, rows=rows,
        columns=columns, x_row=x_row, group=gl.program_id(0) // parts,
        groups=gl.num_programs(0) // parts, first=gl.program_id(0) % parts * BLOCK, FULL=FULL,
        BLOCK=BLOCK, VECTOR=VECTOR, SLOTS=SLOTS)  # fmt: skip
    for load in gl.static_range(SLOTS):
        ring.fill(load)
    return ring
