"""Rows that the programs of a cluster share, each with a part of every one in registers.

Each warp stores two numbers of fp32 in the shared memory of all programs, its own among them, where
an mbarrier counts the bytes; or the warps of a program join their numbers first (TOGETHER). Nobody
reads another's memory, so a program may end once it has all.
"""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ...triton_kit.aggregates import aggregate
from .cluster_text import (
    BEGUN_TEXT,
    KEEP_TEXT,
    KEPT_TEXT,
    OWN_TEXT,
    WAIT_TEXT,
    begin_text,
    held,
    of_part,
    of_rows,
    of_threads,
    of_warps,
    of_words,
    power_from,
    publish_text,
    read_text,
    shape_of,
    words_of,
)
from .part import copy_async

LINE = gl.constexpr(64)  # elements: parts begin at multiples, which no other part's lines have


@aggregate
class Share:
    """What a program has of ROWS rows: `columns` from `first` on, the `part`-th of PARTS of
    `length` each, in at most BLOCK; a thread takes VECTOR elements at a time. FULL: it has BLOCK
    columns. Where there are fewer rows, the last one takes the place of those that are none.
    PIECES: in how many it is loaded and stored. TOGETHER: numbers are told of whole programs."""

    rows: gl.tensor
    part: gl.tensor
    first: gl.tensor
    columns: gl.tensor
    length: gl.tensor
    whole: gl.tensor
    PARTS: gl.constexpr
    FULL: gl.constexpr
    ROWS: gl.constexpr
    BLOCK: gl.constexpr
    PIECES: gl.constexpr
    TOGETHER: gl.constexpr
    VECTOR: gl.constexpr

    @gluon.jit
    def index(self):
        """Of each row."""
        layout: gl.constexpr = of_rows(self.VECTOR, gl.num_warps())
        row = (gl.program_id(0) // self.PARTS).to(gl.int64) * self.ROWS
        row += gl.arange(0, self.ROWS, layout)
        return row if self.ROWS == 1 else gl.minimum(row, self.rows.to(gl.int64) - 1)

    @gluon.jit
    def vector(self, piece):
        """Where each vector of a piece begins, from the first column of the part on."""
        WARPS: gl.constexpr = gl.num_warps()
        STEP: gl.constexpr = 32 * WARPS * self.VECTOR
        TIMES: gl.constexpr = self.BLOCK // STEP // self.PIECES
        layout: gl.constexpr = gl.SliceLayout(3, of_part(self.VECTOR, WARPS))
        time = gl.arange(0, TIMES, gl.SliceLayout(1, gl.SliceLayout(2, layout))) + piece * TIMES
        warp = gl.arange(0, WARPS, gl.SliceLayout(0, gl.SliceLayout(2, layout)))
        lane = gl.arange(0, 32, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
        thread = (warp * (32 * self.VECTOR))[None, :, None] + (lane * self.VECTOR)[None, None, :]
        return ((time * STEP)[:, None, None] + thread)[:, :, :, None]

    @gluon.jit
    def inside(self, piece):
        """Whether a vector is of the part, whose length is a multiple of theirs."""
        return self.vector(piece) < self.columns

    @gluon.jit
    def element(self, piece):
        layout: gl.constexpr = of_part(self.VECTOR, gl.num_warps())
        inner: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
        return self.vector(piece) + gl.arange(0, self.VECTOR, inner)[None, None, None, :]

    @gluon.jit
    def at(self, matrix, stride, piece):
        row = (self.index() * stride + self.first)[:, None, None]
        return matrix + row[:, None, :, :, None] + self.element(piece)[None, :, :, :, :]

    @gluon.jit
    def once(self, x, stride, other: gl.constexpr, piece):
        """Past the L1 cache; beyond the last column `other`."""
        at = self.at(x, stride, piece)
        if self.FULL:
            return gl.load(at, cache_modifier=".cg")
        inside = self.inside(piece)[None, :, :, :, :]
        return gl.load(at, mask=inside, other=other, cache_modifier=".cg")

    @gluon.jit
    def shared(self, vector, piece):
        """Of a vector that all rows have in common."""
        at = vector + self.first + self.element(piece)
        if self.FULL:
            return gl.load(at)
        return gl.load(at, mask=self.inside(piece), other=0.0)

    @gluon.jit
    def fetched(self, vector):
        """Such a vector's places in shared memory, whose loads are under way, past the L1 cache."""
        shape: gl.constexpr = shape_of(self.PIECES, self.BLOCK, self.VECTOR, gl.num_warps())
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [4, 3, 2, 1, 0])
        places = gl.allocate_shared_memory(vector.dtype.element_ty, shape, plain)
        for piece in gl.static_range(self.PIECES):
            at = (vector + self.first + self.element(piece))[None, :, :, :, :]
            if self.FULL:
                copy_async(places.index(piece), at)
            else:
                copy_async(places.index(piece), at, mask=self.inside(piece)[None, :, :, :, :])
        return places

    @gluon.jit
    def fetched_piece(self, places, piece):
        """What this thread loaded, once that is there."""
        return places.index(piece).load(held(self.VECTOR, gl.num_warps()))

    @gluon.jit
    def known(self, v, other, piece):
        """`v`, but for columns beyond the last."""
        if self.FULL:
            return v
        return gl.where(self.inside(piece)[None, :, :, :, :], v, other)

    @gluon.jit
    def store(self, out, stride, y, piece):
        at, y = self.at(out, stride, piece), y.to(out.dtype.element_ty)
        if self.FULL:
            gl.store(at, y)
        else:
            gl.store(at, y, mask=self.inside(piece)[None, :, :, :, :])

    @gluon.jit
    def in_threads(self, number):
        """`number`, of each row, in all threads."""
        return gl.convert_layout(number, of_rows(self.VECTOR, gl.num_warps()))[:, None, None]

    @gluon.jit
    def in_all(self, number, threads):
        """The same, of threads that have one of `threads` each."""
        number = self.in_threads(number)
        return gl.where(threads == threads, number, number)

    @gluon.jit
    def row_warp_and_lane(self):
        """Of each thread's numbers, one of each row."""
        layout: gl.constexpr = of_threads(self.VECTOR, gl.num_warps())
        row = gl.arange(0, self.ROWS, of_rows(self.VECTOR, gl.num_warps()))[:, None, None]
        warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(0, gl.SliceLayout(2, layout)))
        lane = gl.arange(0, 32, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
        warp, lane = warp[None, :, None], lane[None, None, :]
        return row + warp * 0 + lane * 0, row * 0 + warp + lane * 0, row * 0 + warp * 0 + lane

    @gluon.jit
    def together(self, text: gl.constexpr):
        """All threads come here."""
        layout: gl.constexpr = gl.SliceLayout(0, of_threads(self.VECTOR, gl.num_warps()))
        warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(1, layout))[:, None]
        thread = warp * 32 + gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
        gl.inline_asm_elementwise(
            text, "=r,r", [thread], dtype=gl.int32, is_pure=False, pack=1)  # fmt: skip

    @gluon.jit
    def begin(self):
        """Makes the mbarrier, which publish() takes for made everywhere."""
        WARPS: gl.constexpr = gl.num_warps()
        WORDS: gl.constexpr = self.ROWS * words_of(self.PARTS, WARPS, self.TOGETHER)
        self.together(begin_text(WORDS, self.ROWS * WARPS if self.TOGETHER else 1))

    @gluon.jit
    def publish(self, one, other):
        """Two numbers of each row and warp, which all of its lanes have, or of each row, which all
        threads have: a lane tells one program."""
        self.together(BEGUN_TEXT)
        row, warp, to = self.row_warp_and_lane()
        if self.TOGETHER:  # each row by another warp
            word = row * self.PARTS + self.part
            to = gl.where(warp == row % gl.num_warps(), to, -1)
        else:
            word = (row * self.PARTS + self.part) * gl.num_warps() + warp
        gl.inline_asm_elementwise(
            publish_text(self.PARTS), "=r,r,r,r,r", [to, word, one, other], dtype=gl.int32,
            is_pure=False, pack=1)  # fmt: skip

    @gluon.jit
    def of_warps(self, one, other):
        """Both numbers, which all lanes of a warp have, of all warps of this program."""
        WARPS: gl.constexpr = gl.num_warps()
        row, warp, lane = self.row_warp_and_lane()
        gl.inline_asm_elementwise(
            KEEP_TEXT, "=r,r,r,r,r", [lane, row * WARPS + warp, one, other], dtype=gl.int32,
            is_pure=False, pack=1)  # fmt: skip
        self.together(KEPT_TEXT)
        layout: gl.constexpr = of_warps(WARPS)
        row = gl.arange(0, self.ROWS, gl.SliceLayout(1, layout))[:, None]
        warp = gl.arange(0, WARPS, gl.SliceLayout(0, layout))[None, :]
        return gl.inline_asm_elementwise(
            OWN_TEXT, "=r,=r,r", [row * WARPS + warp], dtype=(gl.float32, gl.float32),
            is_pure=False, pack=1)  # fmt: skip

    @gluon.jit
    def gathered(self, otherwise: gl.constexpr):
        """All numbers that are told of each row; beyond the last `otherwise` and 0."""
        WARPS: gl.constexpr = gl.num_warps()
        WORDS: gl.constexpr = words_of(self.PARTS, WARPS, self.TOGETHER)
        self.together(WAIT_TEXT)
        layout: gl.constexpr = of_words(power_from(WORDS), WARPS)
        row = gl.arange(0, self.ROWS, gl.SliceLayout(1, layout))[:, None]
        word = gl.arange(0, power_from(WORDS), gl.SliceLayout(0, layout))[None, :]
        return gl.inline_asm_elementwise(
            read_text(WORDS, otherwise), "=r,=r,r,r", [word + row * 0, row * WORDS + word],
            dtype=(gl.float32, gl.float32), is_pure=False, pack=1)  # fmt: skip

    @gluon.jit
    def of_part(self, part):
        """How many columns a part has; beyond the last none."""
        return gl.minimum(gl.maximum(self.whole - part * self.length, 0), self.length)

    @gluon.jit
    def of_warp(self, part, warp):
        """How many of them a warp has, as fp32."""
        OWN: gl.constexpr = 32 * self.VECTOR
        STEP: gl.constexpr = OWN * gl.num_warps()
        columns = self.of_part(part)
        rest = gl.minimum(gl.maximum(columns % STEP - warp * OWN, 0), OWN)
        return (columns // STEP * OWN + rest).to(gl.float32)

    @gluon.jit
    def of_each(self, numbers):
        """How many columns each of the gathered `numbers` is of, as fp32."""
        layout: gl.constexpr = gl.SliceLayout(0, numbers.type.layout)
        word = gl.arange(0, numbers.shape[1], layout)[None, :]
        if self.TOGETHER:
            return self.of_part(word).to(gl.float32)
        return self.of_warp(word // gl.num_warps(), word % gl.num_warps())


@gluon.jit
def among(threads, number):
    """`number`, of each row and warp, in all of its threads, which have one of `threads` each."""
    return gl.where(threads == threads, number[:, :, None], number[:, :, None])


@gluon.jit
def share_of(
    x, rows, columns, PARTS: gl.constexpr, FULL: gl.constexpr, ROWS: gl.constexpr,
    BLOCK: gl.constexpr, PIECES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """This program's, of a matrix of x's type."""
    part = gl.program_id(0) % PARTS
    length = gl.cdiv(columns, PARTS * LINE) * LINE
    return Share(
        rows=rows, part=part, first=part * length,
        columns=gl.minimum(length, columns - part * length), length=length, whole=columns,
        PARTS=PARTS, FULL=FULL, ROWS=ROWS, BLOCK=BLOCK, PIECES=PIECES, TOGETHER=TOGETHER,
        VECTOR=128 // x.dtype.element_ty.primitive_bitwidth)  # fmt: skip
