"""A program's part of one row, which it keeps in shared memory from the only load to the store."""

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
    """Of a chunk, which is several times a vector for each thread: (times, threads, vector)."""
    return gl.BlockedLayout([1, 1, vector], [1, 32, 1], [1, warps, 1], [2, 1, 0])


@gluon.constexpr_function
def shape_of(block, vector, warps, chunks):
    return [chunks, block // chunks // (32 * warps * vector), 32 * warps, vector]


@gluon.jit
def vectors(LENGTH: gl.constexpr, VECTOR: gl.constexpr):
    """Where each vector of so many elements begins."""
    THREADS: gl.constexpr = 32 * gl.num_warps()
    layout: gl.constexpr = gl.SliceLayout(2, held(VECTOR, gl.num_warps()))
    time = gl.arange(0, LENGTH // (THREADS * VECTOR), gl.SliceLayout(1, layout))
    thread = gl.arange(0, THREADS, gl.SliceLayout(0, layout))
    return ((time * (THREADS * VECTOR))[:, None] + (thread * VECTOR)[None, :])[:, :, None]


@gluon.jit
def elements(vector, VECTOR: gl.constexpr):
    """Those of vectors that begin there."""
    layout: gl.constexpr = held(VECTOR, gl.num_warps())
    inner: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, layout))
    return vector + gl.arange(0, VECTOR, inner)[None, None, :]


@gluon.jit
def each_sum(v):
    """Of what each thread holds."""
    return gl.sum(gl.sum(v, 2), 0)


@aggregate
class Part:
    """The `part`-th BLOCK columns of a row, in CHUNKS pieces that registers have room for; a thread
    takes VECTOR elements at a time, and reads only what it loaded itself. `x`: where the row
    begins. FULL: there is no column beyond the last."""

    places: gl.shared_memory_descriptor
    x: gl.tensor
    columns: gl.tensor
    part: gl.tensor
    FULL: gl.constexpr
    BLOCK: gl.constexpr
    CHUNKS: gl.constexpr
    VECTOR: gl.constexpr

    @gluon.jit
    def vector(self, part, chunk):
        """Where each vector of a chunk begins, in any part of the row: its column."""
        LENGTH: gl.constexpr = self.BLOCK // self.CHUNKS
        return part * self.BLOCK + chunk * LENGTH + vectors(LENGTH, self.VECTOR)

    @gluon.jit
    def chunks(self, part):
        """That have a column."""
        LENGTH: gl.constexpr = self.BLOCK // self.CHUNKS
        return gl.minimum(gl.cdiv(self.columns - part * self.BLOCK, LENGTH), self.CHUNKS)

    @gluon.jit
    def column(self, part, chunk):
        """Of each element of a chunk."""
        return elements(self.vector(part, chunk), self.VECTOR)

    @gluon.jit
    def inside(self, part, chunk):
        """Whether a vector is of the row, whose length is a multiple of theirs."""
        return self.vector(part, chunk) < self.columns

    @gluon.jit
    def fetch(self):
        """Begins all loads."""
        for c in gl.static_range(self.CHUNKS):
            column = self.column(self.part, c)
            if self.FULL:
                copy_async(self.places.index(c), self.x + column)
            else:
                copy_async(self.places.index(c), self.x + column, mask=self.inside(self.part, c))
        commit_group()

    @gluon.jit
    def fetch_row(self, x, there, place):
        """Begins the loads of another row of one chunk, which begins at `x`, if it is there."""
        mask = self.inside(self.part, 0) & there
        copy_async(self.places.index(place), x + self.column(self.part, 0), mask=mask)

    @gluon.jit
    def arrive(self):
        """Waits for the loads of this thread, which alone reads them."""
        wait_group(0)

    @gluon.jit
    def kept(self, chunk):
        """What has arrived, as it is stored."""
        return self.places.index(chunk).load(held(self.VECTOR, gl.num_warps()))

    @gluon.jit
    def read(self, vector, part, chunk):
        """The elements of a vector of the row's length, from global memory."""
        column = self.column(part, chunk)
        if self.FULL:
            return gl.load(vector + column)
        return gl.load(vector + column, mask=self.inside(part, chunk), other=0.0)

    @gluon.jit
    def of(self, part, chunk, OWN: gl.constexpr):
        """A chunk of this part, or of any other."""
        return self.kept(chunk) if OWN else self.read(self.x, part, chunk)

    @gluon.jit
    def known(self, v, part, chunk, other):
        """`v`, but for columns beyond the last."""
        if self.FULL:
            return v
        return gl.where(self.inside(part, chunk), v, other)

    @gluon.jit
    def of_threads(self, value: gl.constexpr):
        """A number for each thread, as a sum of what it holds is."""
        layout: gl.constexpr = gl.SliceLayout(
            0, gl.SliceLayout(2, held(self.VECTOR, gl.num_warps()))
        )
        return gl.full([32 * gl.num_warps()], value, gl.float32, layout)

    @gluon.jit
    def write(self, out, chunk, y):
        """What was computed of a chunk; `out`: where the row begins."""
        column = self.column(self.part, chunk)
        if self.FULL:
            gl.store(out + column, y.to(out.dtype.element_ty))
        else:
            mask = self.inside(self.part, chunk)
            gl.store(out + column, y.to(out.dtype.element_ty), mask=mask)


@gluon.jit
def part_of(
    x, columns, x_row, parts, FULL: gl.constexpr, BLOCK: gl.constexpr, CHUNKS: gl.constexpr
):
    """(this program's part, its row); the loads are under way."""
    VECTOR: gl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    shape: gl.constexpr = shape_of(BLOCK, VECTOR, gl.num_warps(), CHUNKS)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    row = (gl.program_id(0) // parts).to(gl.int64)
    part = Part(
        places=gl.allocate_shared_memory(x.dtype.element_ty, shape, plain), x=x + row * x_row,
        columns=columns, part=gl.program_id(0) % parts, FULL=FULL, BLOCK=BLOCK, CHUNKS=CHUNKS,
        VECTOR=VECTOR)  # fmt: skip
    part.fetch()
    return part, row
