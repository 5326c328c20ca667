"""Launch arguments of the Hopper family, and what its tests read back from them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from flash_helpers.kernel_configs import HopperForwardKernelConfig
from flash_helpers.kernels.forward_args import pack_forward_args
from flash_helpers.kernels.sm90_fwd.arguments import pack_launch_arguments

NOWHERE = 1 << 40  # an address that no test reads or writes


@dataclass(frozen=True)
class Launch:
    """A problem, and memory for its results: `o` [batch, query, head, column] and `lse` [batch,
    head, query], each None if the test does not write it."""

    n_queries: int
    n_keys: int
    causal: bool = False
    batch: int = 1
    heads: int = 1
    kv_heads: int = 1
    o: Any = None
    lse: Any = None
    counter: Any = None

    def args(self, config: HopperForwardKernelConfig) -> bytes:
        """HopperForwardArgs with the emulator's tensor maps."""
        d, n = config.d_head, self.n_queries
        dense = {"q": (n * self.heads * d, self.heads * d, d)}
        dense |= dict.fromkeys("kv", (self.n_keys * self.kv_heads * d, self.kv_heads * d, d))
        of_o = dense["q"] if self.o is None else tuple(s // 2 for s in self.o.strides[:3])
        record = pack_forward_args(
            q=NOWHERE, k=NOWHERE, v=NOWHERE,
            o=NOWHERE if self.o is None else self.o.ctypes.data,
            lse=0 if self.lse is None else self.lse.ctypes.data,
            q_strides=dense["q"], k_strides=dense["k"], v_strides=dense["v"], o_strides=of_o,
            batch=self.batch, seqlen_q=n, seqlen_k=self.n_keys, n_heads_q=self.heads,
            n_heads_kv=self.kv_heads, softmax_scale=1.0, causal=self.causal,
        )  # fmt: skip
        counter = 0 if self.counter is None else self.counter.ctypes.data
        return pack_launch_arguments(config, record, tile_counter=counter)

    def heads_per_section(self, config: HopperForwardKernelConfig) -> int:
        """The field after causal and softmax_scale."""
        n_maps, pointers, ints = 4 * 128, 2 * 8, 6 * 4
        found: int = struct.unpack_from("<fi", self.args(config), n_maps + pointers + ints)[1]
        return found
