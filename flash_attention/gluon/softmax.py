"""What the groups compute in registers between two matrix products."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def run_asm(ASM: gl.constexpr):
    """One instruction without operands. It must have a result for Triton: a zero."""
    text: gl.constexpr = ASM + " mov.b32 $0, 0;"
    gl.inline_asm_elementwise(text, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def hold(KIND: gl.constexpr):
    """Keeps the exponentials in front of the wait that follows.

    ptxas sinks them below the wait for P V otherwise, and nothing overlaps. It moves nothing
    across these instructions; which of them costs least is for the tuner to find out.
    """
    gl.static_assert(KIND == "none" or KIND == "pmevent" or KIND == "membar" or KIND == "warp")
    if KIND == "pmevent":
        run_asm("pmevent 1;")
    elif KIND == "membar":
        run_asm("membar.cta;")
    elif KIND == "warp":
        run_asm("bar.warp.sync 0xffffffff;")


@gluon.jit
def mask_scores(s, tile, key):
    """-inf where a key lies behind the sequence or in the row's future."""
    M: gl.constexpr = s.shape[0]
    N: gl.constexpr = s.shape[1]
    keys = key + gl.arange(0, N, layout=gl.SliceLayout(0, s.type.layout))
    seen = (keys < tile.sizes.seqlen_k)[None, :]
    if tile.kind.CAUSAL:
        rows = tile.row + gl.arange(0, M, layout=gl.SliceLayout(1, s.type.layout))
        last = rows + (tile.sizes.seqlen_k - tile.sizes.seqlen_q)
        seen = seen & (keys[None, :] <= last[:, None])
    return gl.where(seen, s, -float("inf"))


@gluon.jit
def row_maximum(s, scale, m, MASKED: gl.constexpr):
    """The rows' new maximum of scale * s; for a masked block it may be -inf, and is then 0."""
    new = gl.maximum(m, gl.max(s, 1) * scale)
    if MASKED:
        return new, gl.where(new == -float("inf"), 0.0, new)
    return new, new


@gluon.jit
def partial_sums(p):
    """(rows, 4) sums, each of a lane's own columns: the lanes meet once a tile, not every block."""
    M: gl.constexpr = p.shape[0]
    N: gl.constexpr = p.shape[1]
    return gl.sum(gl.sum(gl.reshape(p, [M, N // 8, 4, 2]), 3), 1)


@gluon.jit
def blend(sums, factor, part):
    """sums * factor (by row) + part."""
    rows: gl.constexpr = gl.SliceLayout(1, part.type.layout)
    return sums * gl.convert_layout(factor, rows, assert_trivial=True)[:, None] + part


@gluon.jit
def limits(sums):
    """What a lane's sum of a block may reach before the maximum is taken: half as much again as all
    that the row's four lanes have summed so far. So a key that outweighs the others of its row
    becomes the maximum, with a weight of exactly 1: rounding a weight of 1.1 to 16 bits costs such
    a row 1 eps (docs/kernels/02)."""
    total = gl.sum(sums, 1)
    return gl.minimum(gl.maximum(1.5 * total, 1.0), 32768.0)[:, None] + gl.zeros_like(sums)


@gluon.jit
def raised_limits(limit, alpha, part):
    """The limits when a row's weights have shrunk by alpha, and `part` are the sums of a block that
    holds the maximum."""
    return gl.maximum(blend(limit, alpha, gl.zeros_like(part)), limits(part))


@gluon.jit
def any_above(part, limit, GROUP: gl.constexpr):
    """1 in all threads of the group if a partial sum exceeds its row's limit or is NaN, else 0.

    A tensor's value becomes a scalar through the carry flag: Triton's own reduction would take
    shared memory and two barriers. The barrier that votes keeps the exponentials before it, too.
    """
    PACK: gl.constexpr = part.shape[0] * part.shape[1] // (32 * gl.num_warps())
    gl.static_assert(PACK == 2, "each thread has two rows")
    gl.inline_asm_elementwise(
        """{
        .reg .pred above, other;
        .reg .b32 flag;
        setp.gtu.f32 above, $2, $4;
        setp.gtu.f32 other, $3, $5;
        or.pred above, above, other;
        selp.b32 flag, -1, 0, above;
        add.cc.u32 $0, flag, 1;
        mov.b32 $1, 0;
        }""",
        "=r,=r,r,r,r,r", [part, limit], dtype=gl.int32, is_pure=False, pack=2)  # fmt: skip
    return vote(("12", "13", "14")[GROUP])


@gluon.jit
def vote(BARRIER: gl.constexpr):
    """1 in every thread of the group if the carry flag of one is set."""
    threads: gl.constexpr = "128" if gl.num_warps() == 4 else "256"
    text: gl.constexpr = (
        """{
        .reg .pred mine, any;
        .reg .b32 flag;
        addc.u32 flag, 0, 0;
        setp.ne.u32 mine, flag, 0;
        bar.red.or.pred any, """
        + BARRIER
        + ", "
        + threads
        + """, mine;
        vote.sync.any.pred any, any, 0xffffffff;
        selp.b32 $0, 1, 0, any;
        }"""
    )
    return gl.inline_asm_elementwise(text, "=r", [], dtype=gl.int32, is_pure=False, pack=1)
