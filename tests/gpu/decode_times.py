"""Times calls of few queries with a cache on this machine's GPU, cold L2, contiguous and in pages,
and prints rows for docs/results:

    python -m tests.gpu.decode_times [WORD ...]

Each figure is the median of 11 calls. Every kernel is timed whose tile is the smallest that holds
the rows, or has 16; * marks the one that a call gets. WORDs choose rows. The last sequence is
compared with fp64."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import torch

import flash_attention
from flash_attention.serving import launch, short_way
from flash_helpers.base.dtypes import DType
from flash_helpers.check.serving import ServeRule, attend_sequence
from flash_helpers.kernel_configs import get_kernel_configs, violations
from flash_helpers.kernels.serve_config import ServeKernelConfig
from tests.gpu.packing_times import microseconds
from tests.serving.problems import ints

HEADS, KV_HEADS = 64, 8
CAUSAL = ServeRule(causal=True)


@dataclass(frozen=True)
class Row:
    keys: list[int]
    n_queries: int
    d: int
    page: int  # 0: contiguous

    def name(self) -> str:
        lengths = f"{len(self.keys)} x {self.keys[0]}, longest {max(self.keys)}"
        where = f"page {self.page}" if self.page else "contiguous"
        return f"{lengths}, q {self.n_queries}, d {self.d}, {where}"


def rows() -> list[Row]:
    shapes = [([8192] * 16, 128), ([1024] * 64, 128), ([8192] * 16, 64), ([1024] * 64, 64)]
    found = [Row(keys, q, d, page) for keys, d in shapes for q in (1, 4) for page in (0, 16)]
    # Of few sequences what is left of tiles is put together by many thread blocks.
    few = [Row(keys, q, 128, 0) for keys in ([1024], [16384], [1024] * 16) for q in (1, 4)]
    return [*found, *few, Row([512] * 63 + [131072], 1, 128, 16), Row([8192] * 16, 4, 128, 1)]


class Tensors:
    """Of a row; pages lie in any order, and with heads of 64 there are sinks."""

    def __init__(self, row: Row) -> None:
        page = row.page or max(row.keys)
        pages = [-(-n // page) for n in row.keys]
        kv, q = (sum(pages), page, KV_HEADS, row.d), (len(row.keys), row.n_queries, HEADS, row.d)
        self.k, self.v, self.q = (
            torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in (kv, kv, q)
        )
        order = torch.randperm(sum(pages)) if row.page else torch.arange(sum(pages))
        each = torch.split(order.int(), pages)
        self.table = torch.nn.utils.rnn.pad_sequence(list(each), batch_first=True).cuda()
        self.lengths, self.last = ints(row.keys, "cuda"), each[-1].long().cuda()
        self.sinks = torch.randn(HEADS, device="cuda") if row.d == 64 else None
        self.row = row

    def call(self) -> torch.Tensor:
        o = flash_attention.flash_attn_with_kvcache(
            self.q, self.k, self.v, cache_seqlens=self.lengths, causal=True, sinks=self.sinks,
            block_table=self.table if self.row.page else None,
        )  # fmt: skip
        assert isinstance(o, torch.Tensor)
        return o

    def error(self, o: torch.Tensor) -> float:
        """The largest relative error of a row of the last sequence, in eps of the type."""
        k, v = (x[self.last].flatten(0, 1)[: self.row.keys[-1]] for x in (self.k, self.v))
        expected, _ = attend_sequence(self.q[-1], k, v, CAUSAL, sinks=self.sinks)
        difference = (o[-1].double() - expected).norm(dim=-1) / expected.norm(dim=-1)
        return float(difference.max() / torch.finfo(o.dtype).eps)


def chosen(tensors: Tensors) -> ServeKernelConfig:
    """What a call gets."""
    found = []
    choose = launch.choose

    def noted(call: launch.Call) -> ServeKernelConfig:
        found.append(choose(call))
        return found[0]

    with (
        mock.patch.object(launch, "choose", noted),
        mock.patch.object(short_way, "remember", lambda *_, **__: None),
    ):
        tensors.call()
    return found[0]


def fitting(row: Row) -> list[ServeKernelConfig]:
    """That share keys, with the smallest tile for the row, or with tiles of 16 rows."""
    arch = torch.cuda.get_device_capability()
    found = [
        c for c in get_kernel_configs("serve")
        if isinstance(c, ServeKernelConfig) and c.shares_keys() and c.dtype is DType.BF16
        and c.d_head == row.d and not violations(c, f"{arch[0]}.{arch[1]}")
    ]  # fmt: skip
    tiles = {c.blocks()[0] for c in found}
    whole = min(tile for tile in tiles if tile >= row.n_queries * HEADS // KV_HEADS)
    return [c for c in found if c.blocks()[0] in (16, whole)]


def main(words: Sequence[str]) -> None:
    print(torch.cuda.get_device_name())
    print("| row | kernel | us | TB/s | error, eps |\n| --- | --- | --- | --- | --- |")
    cold = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    for row in rows():
        if words and not any(word in row.name() for word in words):
            continue
        tensors = Tensors(row)
        n_bytes = sum(row.keys) * KV_HEADS * 2 * row.d * 2
        gets = chosen(tensors)
        for config in fitting(row):
            with (  # no call is remembered, which would keep the kernel
                mock.patch.object(launch, "choose", lambda call, config=config: config),
                mock.patch.object(short_way, "remember", lambda *_, **__: None),
            ):
                error, us = tensors.error(tensors.call()), microseconds(tensors.call, cold)
            mark = " *" if config == gets else ""
            cells = [row.name(), config.short_form() + mark, f"{us:.1f}",
                     f"{n_bytes / us / 1e6:.2f}", f"{error:.2f}"]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
