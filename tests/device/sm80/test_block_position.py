"""BlockPosition: which queries, keys and outputs a thread block of the grid gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.kernels.forward_args import pack_forward_args
from tests.device.launching import device_kernel, launch, wanted

from .configs import config

Q, K, V, OUT, LSE = (n << 40 for n in range(1, 6))
# (batch, sequence, head), in elements; batches so far apart that 32 bits would overflow
STRIDES = {
    "q": (1 << 33, 1024, 128),
    "k": (1 << 34, 512, 264),
    "v": (1 << 35, 520, 272),
    "o": (1 << 36, 2048, 64),
}


# (block of queries, queries, kernel for any length, causal). The kernel for whole blocks takes
# neither other lengths nor the mask.
LAUNCHES = [(64, 256, False, False), (128, 384, False, False), (64, 256, True, False),
            (64, 256, True, True), (64, 300, True, False), (128, 300, True, True)]  # fmt: skip


@pytest.mark.parametrize("with_lse", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize(("block", "seqlen", "any_length", "causal"), LAUNCHES)
def test_every_block_of_queries_once(
    headers: Path, block: int, seqlen: int, heads: int, kv_heads: int, any_length: bool,
    causal: bool, with_lse: bool,
) -> None:  # fmt: skip
    """Query blocks change fastest, then heads, then the batch; causal ones from last to first."""
    batch, n_blocks = 2, -(-seqlen // block)
    args = pack_forward_args(
        q=Q, k=K, v=V, o=OUT, lse=LSE if with_lse else 0,
        **{f"{name}_strides": strides for name, strides in STRIDES.items()},
        batch=batch, seqlen_q=seqlen, seqlen_k=512, n_heads_q=heads, n_heads_kv=kv_heads,
        softmax_scale=1.0, causal=causal,
    )  # fmt: skip
    grid = n_blocks * heads * batch
    out = wanted((grid, 6), np.int64)
    kernel = device_kernel(headers, "sm80/block_position.cu", config=config(B_r=block))
    launch(kernel, args, out, any_length, grid=grid, block=1)

    def at(base: int, name: str, b: int, row: int, head: int) -> int:
        of_batch, of_row, of_head = STRIDES[name]
        return base + 2 * (b * of_batch + row * of_row + head * of_head)

    expected = []
    for b in range(batch):
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            for i in range(n_blocks):
                row = block * (n_blocks - 1 - i if causal else i)
                lse = LSE + 4 * ((b * heads + head) * seqlen + row) if with_lse else 0
                expected.append(
                    (at(Q, "q", b, row, head), at(K, "k", b, 0, kv_head),
                     at(V, "v", b, 0, kv_head), at(OUT, "o", b, row, head), lse, row)
                )  # fmt: skip
    np.testing.assert_array_equal(out, expected)
