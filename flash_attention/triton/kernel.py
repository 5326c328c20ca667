"""Attention in plain Triton, for any GPU that it compiles for.

One program computes BLOCK_M rows of one head. The loop over keys has two parts: blocks that all
rows see whole, and behind them those that the sequence's end or the diagonal cuts.
"""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..triton_kit.aggregates import Value, aggregate


@aggregate
class Keys:
    """The keys and values of one head, in blocks of BLOCK_N, and which of them a row sees."""

    k: tl.tensor  # the first key
    v: tl.tensor
    k_stride: Value
    v_stride: Value
    seqlen_q: tl.tensor
    seqlen_k: tl.tensor
    scale: tl.tensor
    BLOCK_N: tl.constexpr
    D: tl.constexpr
    CAUSAL: tl.constexpr


@triton.jit
def add_blocks(head_keys, acc, m, sums, q, rows, first, last, MASKED: tl.constexpr):
    """The key blocks `first` to `last` - 1 added to the running output, maximum and sums."""
    seqlen_k, scale = head_keys.seqlen_k, head_keys.scale
    columns = tl.arange(0, head_keys.D)
    for block in range(first, last):
        keys = block * head_keys.BLOCK_N + tl.arange(0, head_keys.BLOCK_N)
        places = keys.to(tl.int64)
        k_at = head_keys.k + places[None, :] * head_keys.k_stride + columns[:, None]
        v_at = head_keys.v + places[:, None] * head_keys.v_stride + columns[None, :]
        if MASKED:
            k = tl.load(k_at, mask=(keys < seqlen_k)[None, :], other=0.0)
        else:
            k = tl.load(k_at)
        s = tl.dot(q, k)
        if MASKED:
            seen = (keys < seqlen_k)[None, :]
            if head_keys.CAUSAL:
                seen = seen & (keys[None, :] <= (rows + (seqlen_k - head_keys.seqlen_q))[:, None])
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1) * scale)
        reference = m_new
        if MASKED:  # a row that has seen nothing yet
            reference = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp2(s * scale - reference[:, None])
        alpha = tl.exp2(m - reference)
        sums = sums * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if MASKED:
            v = tl.load(v_at, mask=(keys < seqlen_k)[:, None], other=0.0)
        else:
            v = tl.load(v_at)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m = m_new
    return acc, m, sums


SIZES = ["seqlen_q", "seqlen_k", "n_heads", "kv_group", "n_tiles", "n_heads_all", "section"]


@triton.jit(do_not_specialize=SIZES)
def attention(
    q, k, v, o,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head, o_batch, o_row, o_head,
    seqlen_q, seqlen_k, n_heads, kv_group, n_tiles, n_heads_all, section, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """O = softmax(scale q k^T) v; strides in elements, `scale` times log2(e). Causal: the longest
    tiles first, the heads of a section abreast."""
    t = tl.program_id(0)
    if CAUSAL:
        part = t // (section * n_tiles)
        rest = t - part * section * n_tiles
        abreast = tl.minimum(section, n_heads_all - part * section)
        tile = n_tiles - 1 - rest // abreast
        head_all = part * section + rest % abreast
    else:
        head_all = t // n_tiles
        tile = t - head_all * n_tiles
    batch = (head_all // n_heads).to(tl.int64)
    head = head_all % n_heads
    kv_head = (head // kv_group).to(tl.int64)
    head = head.to(tl.int64)

    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, D)
    inside = (rows < seqlen_q)[:, None]
    places = rows.to(tl.int64)[:, None]
    q_tile = tl.load(
        q + batch * q_batch + head * q_head + places * q_row + columns[None, :],
        mask=inside, other=0.0)  # fmt: skip
    n_blocks = tl.cdiv(seqlen_k, BLOCK_N)
    n_clear = seqlen_k // BLOCK_N
    if CAUSAL:
        last = tile * BLOCK_M + (seqlen_k - seqlen_q)  # the last key that the first row sees
        n_blocks = tl.minimum(n_blocks, tl.cdiv(tl.maximum(last + BLOCK_M, 0), BLOCK_N))
        n_clear = tl.minimum(n_clear, tl.maximum(last + 1, 0) // BLOCK_N)

    acc = tl.zeros([BLOCK_M, D], tl.float32)
    m = tl.full([BLOCK_M], -float("inf"), tl.float32)
    sums = tl.zeros([BLOCK_M], tl.float32)
    head_keys = Keys(
        k=k + batch * k_batch + kv_head * k_head, v=v + batch * v_batch + kv_head * v_head,
        k_stride=k_row, v_stride=v_row, seqlen_q=seqlen_q, seqlen_k=seqlen_k, scale=scale,
        BLOCK_N=BLOCK_N, D=D, CAUSAL=CAUSAL)  # fmt: skip
    acc, m, sums = add_blocks(head_keys, acc, m, sums, q_tile, rows, 0, n_clear, False)
    acc, m, sums = add_blocks(head_keys, acc, m, sums, q_tile, rows, n_clear, n_blocks, True)
    acc = acc * tl.where(sums > 0.0, 1.0 / sums, 0.0)[:, None]
    tl.store(
        o + batch * o_batch + head * o_head + places * o_row + columns[None, :],
        acc.to(o.dtype.element_ty), mask=inside)  # fmt: skip
