"""What the programs of a cluster say in inline assembly, as Triton has no function for it, and the
layouts of what they have (cluster.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def held(vector, warps):
    """Of a piece of parts of rows, which is several times a vector for each thread: (rows, times,
    warps, lanes, vector)."""
    return gl.BlockedLayout(
        [1, 1, 1, 1, vector], [1, 1, 1, 32, 1], [1, 1, warps, 1, 1], [4, 3, 2, 1, 0]
    )


@gluon.constexpr_function
def shape_of(pieces, block, vector, warps):
    """Of all pieces of a part of one row in shared memory."""
    return [pieces, 1, block // pieces // (32 * warps * vector), warps, 32, vector]


@gluon.constexpr_function
def of_part(vector, warps):
    """Of what all rows have in common: (times, warps, lanes, vector)."""
    return gl.SliceLayout(0, held(vector, warps))


@gluon.constexpr_function
def of_threads(vector, warps):
    """Of what a sum over a thread's own numbers is: (rows, warps, lanes)."""
    return gl.SliceLayout(1, gl.SliceLayout(4, held(vector, warps)))


@gluon.constexpr_function
def of_rows(vector, warps):
    return gl.SliceLayout(1, gl.SliceLayout(2, of_threads(vector, warps)))


@gluon.constexpr_function
def of_words(most, warps):
    """Of a row's words, whoever tells them: every warp has all of them."""
    return gl.BlockedLayout([1, max(1, most // 32)], [1, 32], [1, warps], [1, 0])


@gluon.constexpr_function
def of_warps(warps):
    """Of a number of each warp of a program: every thread has all of them."""
    return gl.BlockedLayout([1, warps], [1, 32], [1, warps], [1, 0])


@gluon.constexpr_function
def words_of(parts, warps, together):
    return parts if together else parts * warps


@gluon.constexpr_function
def power_from(number):
    return 1 << (number - 1).bit_length()


# --- what has no function in Gluon ---------------------------------------------------------------
# A block of inline assembly declares the shared variables that the later ones name: a word of 16
# bytes for each warp, of which 8 are stored, since what watches for races goes by 16. Arrivals are
# relaxed, as CUTLASS has them: `.release` would wait for the loads that are under way.


@gluon.constexpr_function
def begin_text(words, own):
    return f"""
        .shared .align 16 .b8 flash_words[{16 * words}];
        .shared .align 16 .b8 flash_own[{16 * own}];
        .shared .align 8 .b64 flash_full;
        {{ .reg .pred first; .reg .b32 full;
        setp.eq.s32 first, $1, 0;
        mov.u32 full, flash_full;
        @first mbarrier.init.shared::cta.b64 [full], 1;
        @first fence.mbarrier_init.release.cluster;
        @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {8 * words};
        barrier.cluster.arrive.relaxed.aligned;
        mov.u32 $0, 0; }}"""


BEGUN_TEXT = gl.constexpr("""
        barrier.cluster.wait.acquire.aligned;
        mov.u32 $0, 0;""")


@gluon.constexpr_function
def publish_text(parts):
    return f"""
        {{ .reg .pred to; .reg .b32 word, full; .reg .b64 both;
        setp.lt.u32 to, $1, {parts};
        mov.u32 word, flash_words;
        mad.lo.s32 word, $2, 16, word;
        mov.u32 full, flash_full;
        mov.b64 both, {{$3, $4}};
        @to mapa.shared::cluster.u32 word, word, $1;
        @to mapa.shared::cluster.u32 full, full, $1;
        @to st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [word], both, [full];
        mov.u32 $0, 0; }}"""


KEEP_TEXT = gl.constexpr("""
        { .reg .pred first; .reg .b32 word;
        setp.eq.s32 first, $1, 0;
        mov.u32 word, flash_own;
        mad.lo.s32 word, $2, 16, word;
        @first st.shared.v2.b32 [word], {$3, $4};
        mov.u32 $0, 0; }""")

KEPT_TEXT = gl.constexpr("""
        bar.sync 0;
        mov.u32 $0, 0;""")

OWN_TEXT = gl.constexpr("""
        { .reg .b32 word;
        mov.u32 word, flash_own;
        mad.lo.s32 word, $2, 16, word;
        ld.shared.v2.b32 {$0, $1}, [word]; }""")

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
        mad.lo.s32 word, $3, 16, word;
        mov.b32 $0, {otherwise};
        mov.b32 $1, 0;
        @exists ld.shared.v2.b32 {{$0, $1}}, [word]; }}"""
