"""The Gluon attention kernels in the emulator, on problems of every kind."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from flash_attention.gluon.config import GluonForwardConfig, configs
from flash_attention.gluon.op import GluonAttention
from flash_attention.triton_kit.calls import AttentionCall
from flash_attention.triton_kit.emulated import compiled, launch
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import Comparison, compare
from flash_helpers.emulator import LaunchOptions, LaunchReport
from flash_helpers.kernels.problem import AttentionProblem

from ..work import Work


@dataclass(frozen=True)
class GluonKernel:
    """Which kernel: all that is part of its code."""

    config: GluonForwardConfig
    ping_pong: bool
    bf16: bool
    d_head: int
    causal: bool

    def __str__(self) -> str:
        words = ["WS PP" if self.ping_pong else "WS", "bf16" if self.bf16 else "fp16"]
        words += [f"d{self.d_head}", "causal" if self.causal else "full"]
        return " ".join([*words, *map(str, self.config.as_dict().values())])

    def compiled(self) -> Any:
        return compiled(
            self.op, self.config, AttentionCall.of_code(self.d_head, self.causal, self.dtype)
        )

    @property
    def op(self) -> GluonAttention:
        return GluonAttention(self.ping_pong)

    @property
    def dtype(self) -> DType:
        return DType.BF16 if self.bf16 else DType.FP16


# Small blocks: Triton and g++ take less time.
TWO = GluonForwardConfig(BLOCK_M=128, BLOCK_N=64, NUM_BUFFERS=2)
THREE = GluonForwardConfig(192, 64, 2, 12, 3, "warp", PERSISTENT=True)
OPTIMISTIC = replace(TWO, OVERLAP_FENCE="none", OPTIMISTIC=True)
FEW = (
    GluonKernel(TWO, True, False, 64, True),
    GluonKernel(THREE, True, True, 64, False),
    GluonKernel(TWO, False, True, 128, True),
    GluonKernel(THREE, False, False, 64, False),
    GluonKernel(OPTIMISTIC, True, False, 64, True),
)


def every_kernel() -> list[GluonKernel]:
    """The autotuning space; what differs in the size of the grid only is one kernel."""
    kinds = itertools.product((False, True), (False, True), (64, 128), (False, True))
    return [
        GluonKernel(config, ping_pong, bf16, d_head, causal)
        for ping_pong, bf16, d_head, causal in kinds
        for config in configs(ping_pong, d_head)
        if config.PERSISTENT
    ]


@dataclass(frozen=True)
class Lengths:
    """`blocks` None: as many as there are tiles, or few if the kernel is persistent."""

    seqlen_q: int
    seqlen_k: int
    batch: int = 1
    heads: int = 1
    kv_heads: int = 1
    blocks: int | None = None
    growth: float = 12.0  # of the keys, towards the front, where the kernels arrive last


class GluonProblem:
    """Inputs (batch, sequence, head, column) and the reference in fp64."""

    def __init__(self, kernel: GluonKernel, lengths: Lengths, seed: int) -> None:
        import torch

        self.kernel, self.lengths = kernel, lengths
        dtype = kernel.dtype.to_torch_dtype()
        random = torch.Generator().manual_seed(seed)

        def tensor(length: int, heads: int) -> Any:
            shape = (lengths.batch, length, heads, kernel.d_head)
            return torch.randn(shape, generator=random).to(dtype)

        self.q = tensor(lengths.seqlen_q, lengths.heads)
        growth = torch.linspace(lengths.growth, 0.3, lengths.seqlen_k)[:, None, None]
        self.k = (tensor(lengths.seqlen_k, lengths.kv_heads).float() * growth).to(dtype)
        self.v = tensor(lengths.seqlen_k, lengths.kv_heads)
        self.expected, _ = attention_reference(
            self.q, self.k, self.v, causal=kernel.causal, fp64=True
        )

    def run(
        self, options: LaunchOptions | None = None, ptx: str | None = None
    ) -> tuple[Any, LaunchReport]:
        """The output, which starts as NaN, and the report; of other PTX for the kernel if given."""
        import torch

        kernel, sizes = self.kernel, self.lengths
        code = kernel.compiled()
        problem = AttentionProblem(
            kernel.dtype,
            sizes.batch,
            sizes.seqlen_q,
            sizes.seqlen_k,
            sizes.heads,
            sizes.kv_heads,
            kernel.d_head,
            causal=kernel.causal,
        )
        call = AttentionCall(problem, kernel.d_head**-0.5)
        o = torch.full_like(self.q, torch.nan)
        report = launch(
            kernel.op,
            code if ptx is None else replace(code, ptx=ptx),
            kernel.config,
            call,
            (self.q, self.k, self.v, o),
            blocks=sizes.blocks,
            options=options,
        )
        return o, report

    def needed(self) -> Work:
        """In every 64 rows of a tile, Q K^T and P V in steps of 16 for all blocks of keys that some
        row of the tile sees: what is computed again is not in it. Boxes are 64 columns wide; each
        group loads its Q, and stores."""
        sizes, config = self.lengths, self.kernel.config
        blocks = tiles = 0
        for first in range(0, sizes.seqlen_q, config.BLOCK_M):
            seen = first + config.BLOCK_M + sizes.seqlen_k - sizes.seqlen_q
            keys = min(sizes.seqlen_k, max(0, seen)) if self.kernel.causal else sizes.seqlen_k
            blocks += -(-keys // config.BLOCK_N)
            tiles += 1
        heads, boxes = sizes.batch * sizes.heads, self.kernel.d_head // 64
        steps = (self.kernel.d_head + config.BLOCK_N) // 16
        groups = tiles * config.NUM_MMA_GROUPS
        return Work(
            4 * heads * blocks * config.BLOCK_M // 64 * steps,
            bulk_loads=heads * boxes * (groups + 2 * blocks),
            bulk_stores=heads * boxes * groups,
        )

    def comparison(self, o: Any) -> Comparison:
        return compare(o, self.expected)

    def is_right(self, o: Any) -> bool:
        return self.comparison(o).passed
