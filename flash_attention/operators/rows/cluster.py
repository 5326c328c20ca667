"""A row that the programs of a cluster share, each with a part of it in registers.

Each warp stores two numbers of fp32 in the shared memory of all programs, its own among them, where
an mbarrier counts the bytes. Nobody reads another's memory, so a program may end once it has all.
"""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ...triton_kit.aggregates import aggregate

LINE = gl.constexpr(64)  # elements: parts begin at multiples, which no other part's lines have


@gluon.constexpr_function
def held(vector, warps):
    """Of a part, which is several times a vector for each thread: (times, warps, lanes, vector)."""
    return gl.BlockedLayout([1, 1, 1, vector], [1, 1, 32, 1], [1, warps, 1, 1], [3, 2, 1, 0])


@gluon.constexpr_function
def of_words(most, warps):
    """Of a word of each warp of the cluster: every warp has all of them."""
    return gl.BlockedLayout([max(1, most // 32)], [32], [warps], [0])


@gluon.constexpr_function
def most_words(parts, warps):
    return 1 << (parts * warps - 1).bit_length()


# --- what has no function in Gluon ---------------------------------------------------------------
# A block of inline assembly declares the shared variables that the later ones name: a word of 16
# bytes for each warp, of which 8 are stored, since what watches for races goes by 16. Arrivals are
# relaxed, as CUTLASS has them: `.release` would wait for the loads that are under way.


@gluon.constexpr_function
def begin_text(parts, warps):
    return f"""
        .shared .align 16 .b8 flash_words[{16 * parts * warps}];
        .shared .align 8 .b64 flash_full;
        {{ .reg .pred first; .reg .b32 full;
        setp.eq.s32 first, $1, 0;
        mov.u32 full, flash_full;
        @first mbarrier.init.shared::cta.b64 [full], 1;
        @first fence.mbarrier_init.release.cluster;
        @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {8 * parts * warps};
        barrier.cluster.arrive.relaxed.aligned;
        mov.u32 $0, 0; }}"""


@gluon.constexpr_function
def publish_text(parts):
    return f"""
        {{ .reg .pred to; .reg .b32 word, full; .reg .b64 both;
        barrier.cluster.wait.acquire.aligned;
        setp.lt.s32 to, $1, {parts};
        mov.u32 word, flash_words;
        mad.lo.s32 word, $2, 16, word;
        mov.u32 full, flash_full;
        mov.b64 both, {{$3, $4}};
        @to mapa.shared::cluster.u32 word, word, $1;
        @to mapa.shared::cluster.u32 full, full, $1;
        @to st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [word], both, [full];
        mov.u32 $0, 0; }}"""


WAIT_TEXT = gl.constexpr("""
        { .reg .pred there; .reg .b32 full;
        mov.u32 full, flash_full;
        FLASH_WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 there, [full], 0;
        @!there bra FLASH_WAIT;
        mov.u32 $0, 0; }""")


@gluon.constexpr_function
def read_text(words, otherwise):
    return f"""
        {{ .reg .pred exists; .reg .b32 word;
        setp.lt.s32 exists, $2, {words};
        mov.u32 word, flash_words;
        mad.lo.s32 word, $2, 16, word;
        mov.b32 $0, {otherwise};
        mov.b32 $1, 0;
        @exists ld.shared.v2.b32 {{$0, $1}}, [word]; }}"""


@aggregate
class Share:
    """What a program has of the `index`-th row: `columns` from `first` on, the `part`-th of PARTS,
    in at most BLOCK; a thread takes VECTOR elements at a time. FULL: it has BLOCK columns."""

    index: gl.tensor
    part: gl.tensor
    first: gl.tensor
    columns: gl.tensor
    PARTS: gl.constexpr
    FULL: gl.constexpr
    BLOCK: gl.constexpr
    VECTOR: gl.constexpr

    @gluon.jit
    def vector(self):
        """Where each vector begins, from the first column of the part on."""
        WARPS: gl.constexpr = gl.num_warps()
        STEP: gl.constexpr = 32 * WARPS * self.VECTOR
        layout: gl.constexpr = gl.SliceLayout(3, held(self.VECTOR, WARPS))
        time = gl.arange(0, self.BLOCK // STEP, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
        warp = gl.arange(0, WARPS, gl.SliceLayout(0, gl.SliceLayout(2, layout)))
        lane = gl.arange(0, 32, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
        thread = (warp * (32 * self.VECTOR))[None, :, None] + (lane * self.VECTOR)[None, None, :]
        return ((time * STEP)[:, None, None] + thread)[:, :, :, None]

    @gluon.jit
    def inside(self):
        """Whether a vector is of the part, whose length is a multiple of theirs."""
        return self.vector() < self.columns

    @gluon.jit
    def at(self, vector):
        """The elements of a vector of the row's length."""
        layout: gl.constexpr = held(self.VECTOR, gl.num_warps())
        inner: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
        element = gl.arange(0, self.VECTOR, inner)[None, None, None, :]
        return vector + self.first + (self.vector() + element)

    @gluon.jit
    def once(self, x, stride, other: gl.constexpr):
        """The part, past the L1 cache; beyond the last column `other`."""
        at = self.at(x + self.index * stride)
        if self.FULL:
            return gl.load(at, cache_modifier=".cg")
        return gl.load(at, mask=self.inside(), other=other, cache_modifier=".cg")

    @gluon.jit
    def shared(self, vector):
        """The part of a vector that all rows have in common."""
        if self.FULL:
            return gl.load(self.at(vector))
        return gl.load(self.at(vector), mask=self.inside(), other=0.0)

    @gluon.jit
    def store(self, out, stride, y):
        at, y = self.at(out + self.index * stride), y.to(out.dtype.element_ty)
        if self.FULL:
            gl.store(at, y)
        else:
            gl.store(at, y, mask=self.inside())

    @gluon.jit
    def warp_and_lane(self):
        """Of each thread, as a number of each is held that was made of what it has."""
        layout: gl.constexpr = gl.SliceLayout(
            0, gl.SliceLayout(3, held(self.VECTOR, gl.num_warps()))
        )
        warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(1, layout))[:, None]
        lane = gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
        return warp + lane * 0, lane + warp * 0

    @gluon.jit
    def begin(self):
        """Makes the mbarrier, which publish() takes for made everywhere. All threads come here."""
        warp, lane = self.warp_and_lane()
        gl.inline_asm_elementwise(
            begin_text(self.PARTS, gl.num_warps()), "=r,r", [warp * 32 + lane], dtype=gl.int32,
            is_pure=False, pack=1)  # fmt: skip

    @gluon.jit
    def publish(self, one, other):
        """Two numbers of each warp, which all of its lanes have: a lane tells one program."""
        warp, lane = self.warp_and_lane()
        gl.inline_asm_elementwise(
            publish_text(self.PARTS), "=r,r,r,r,r",
            [lane, self.part * gl.num_warps() + warp, one, other], dtype=gl.int32, is_pure=False,
            pack=1)  # fmt: skip

    @gluon.jit
    def gathered(self, otherwise: gl.constexpr):
        """Both numbers of all warps of the row; beyond the last `otherwise` and 0."""
        WARPS: gl.constexpr = gl.num_warps()
        _, lane = self.warp_and_lane()
        gl.inline_asm_elementwise(WAIT_TEXT, "=r,r", [lane], dtype=gl.int32, is_pure=False, pack=1)
        MOST: gl.constexpr = most_words(self.PARTS, WARPS)
        return gl.inline_asm_elementwise(
            read_text(self.PARTS * WARPS, otherwise), "=r,=r,r",
            [gl.arange(0, MOST, of_words(MOST, WARPS))], dtype=(gl.float32, gl.float32),
            is_pure=False, pack=1)  # fmt: skip


@gluon.jit
def among(threads, number):
    """`number`, of each warp, in all of its threads, which have one of `threads` each."""
    return gl.where(threads == threads, number[:, None], number[:, None])


@gluon.jit
def share_of(x, columns, PARTS: gl.constexpr, FULL: gl.constexpr, BLOCK: gl.constexpr):
    """This program's, of a matrix of x's type."""
    part = gl.program_id(0) % PARTS
    length = gl.cdiv(columns, PARTS * LINE) * LINE
    return Share(
        index=(gl.program_id(0) // PARTS).to(gl.int64), part=part, first=part * length,
        columns=gl.minimum(length, columns - part * length), PARTS=PARTS, FULL=FULL, BLOCK=BLOCK,
        VECTOR=128 // x.dtype.element_ty.primitive_bitwidth)  # fmt: skip
