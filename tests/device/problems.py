"""Problems as launch arguments, and which keys each query sees, key by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flash_helpers.kernels.forward_args import pack_forward_args

# Queries and keys: fewer keys, as many and more; no keys; around multiples of 32, 64 and 128.
LENGTHS = [(64, 64), (128, 128), (1, 1), (1, 200), (200, 1), (63, 65), (65, 63), (130, 96),
           (96, 130), (192, 300), (300, 192), (127, 0), (256, 129), (129, 256)]  # fmt: skip


@dataclass(frozen=True)
class Problem:
    n_queries: int
    n_keys: int
    causal: bool

    def args(self) -> bytes:
        """ForwardArgs of one head, without any tensors."""
        none = (0, 64, 0)
        return pack_forward_args(
            q=0, k=0, v=0, o=0, lse=0, q_strides=none, k_strides=none, v_strides=none,
            o_strides=none, batch=1, seqlen_q=self.n_queries, seqlen_k=self.n_keys,
            n_heads_q=1, n_heads_kv=1, softmax_scale=1.0, causal=self.causal,
        )  # fmt: skip

    def sees(self, first_row: int, n_rows: int, first_key: int, n_keys: int) -> Any:
        """Whether each query sees each key: (row, key). Rows past the end count as if they were
        queries too."""
        row = first_row + np.arange(n_rows)[:, None]
        key = first_key + np.arange(n_keys)
        inside = np.broadcast_to(key < self.n_keys, (n_rows, n_keys))
        if not self.causal:
            return inside
        return inside & (key <= row + self.n_keys - self.n_queries)


PROBLEMS = [Problem(q, k, causal) for q, k in LENGTHS for causal in (False, True)]


def records(items: list[Problem]) -> Any:
    """An array of ForwardArgs."""
    return np.frombuffer(b"".join(item.args() for item in items), np.uint8)
