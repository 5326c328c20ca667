"""FLOP and byte counts. The only formulas in the repository: tools and tests call these.

Three FLOP counts exist and they differ, so a table must say which one it shows:
`calc_matmul_flop` (peers are compared on it), `calc_self_attn_flop` (adds the softmax of the
whole score matrix) and `calc_total_flop` (adds what a tiled kernel does per block).
"""

# Five matmuls of scores' size in place of two, as peers count.
BACKWARD_OVER_FORWARD = 2.5


def tile_softmax_flop(B_r: int, B_c: int, d_head: int) -> int:
    """Softmax work for one KV tile: scores, row statistics and the rescale of O."""
    return B_r * (4 * B_c + d_head + 4)


def kv_tile_flop(B_r: int, B_c: int, d_head: int) -> int:
    """One iteration of the inner loop: both matmuls and the softmax between them."""
    return 4 * B_r * B_c * d_head + tile_softmax_flop(B_r, B_c, d_head)


def calc_tiled_flop(
    n_heads: int, n_q_blocks: int, n_kv_blocks: int, B_r: int, B_c: int, d_head: int
) -> int:
    """What a tiled kernel computes for `n_heads` (of all samples), with every block whole."""
    epilogue = B_r * d_head
    per_q_block = n_kv_blocks * kv_tile_flop(B_r, B_c, d_head) + epilogue
    return n_heads * n_q_blocks * per_q_block


def calc_total_flop(
    n_samples: int, n_heads: int, seq_len: int, B_r: int, B_c: int, d_head: int
) -> int:
    """Everything the tiled kernel computes; needs seq_len divisible by both blocks."""
    for name, block in (("B_r", B_r), ("B_c", B_c)):
        if block <= 0 or seq_len % block:
            raise ValueError(f"seq_len {seq_len} is not divisible by {name} = {block}")
    n_q_blocks, n_kv_blocks = seq_len // B_r, seq_len // B_c
    return calc_tiled_flop(n_samples * n_heads, n_q_blocks, n_kv_blocks, B_r, B_c, d_head)


def calc_self_attn_flop(n_samples: int, n_heads: int, seq_len: int, d_head: int) -> int:
    """calc_attn_flop() of as many keys as queries, without a mask."""
    return calc_attn_flop(n_samples, n_heads, seq_len, seq_len, d_head)


def calc_attn_flop(
    batch: int, n_heads: int, seqlen_q: int, seqlen_k: int, d_head: int, causal: bool = False,
    d_v: int = 0,
) -> int:  # fmt: skip
    """Attention without regard to tiling: two matmuls and six operations per score."""
    scores = _twice_the_scores(seqlen_q, seqlen_k, causal)
    return batch * n_heads * scores * (d_head + (d_v or d_head) + 3)


def calc_matmul_flop(
    batch: int, n_heads: int, seqlen_q: int, seqlen_k: int, d_head: int, causal: bool = False,
    d_v: int = 0,
) -> int:  # fmt: skip
    """The two matmuls alone, 4*B*H*Sq*Sk*d: the count that peers publish (half when causal, where
    the lengths are equal). `d_v` of 0 stands for d_head."""
    scores = _twice_the_scores(seqlen_q, seqlen_k, causal)
    return batch * n_heads * scores * (d_head + (d_v or d_head))


def _twice_the_scores(seqlen_q: int, seqlen_k: int, causal: bool) -> int:
    """The area of the score matrix that counts, twice (half of it need not be whole). Causal: what
    lies below the diagonal that ends in the last query and key."""
    if not causal:
        return 2 * seqlen_q * seqlen_k
    shorter = min(seqlen_q, seqlen_k)
    return 2 * shorter * seqlen_k - shorter**2


def calc_io_elements(
    batch: int, seqlen_q: int, seqlen_k: int, n_heads: int, n_kv_heads: int, d_head: int, d_v: int
) -> int:
    """Elements of Q, K, V and O."""
    return batch * (seqlen_q * n_heads + seqlen_k * n_kv_heads) * (d_head + d_v)
