"""Serving kernels do exactly the work that their lengths ask for: matrix instructions, copies of
keys, stores. One that does more is right, and slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.serving import splits
from flash_helpers.check.serving import ServeRule
from flash_helpers.emulator import LaunchReport
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sm80_serve.config import AmpereServeKernelConfig
from flash_helpers.kernels.sm80_serve.family import Sm80Serve
from flash_helpers.kernels.sm80_serve_mla.config import AmpereMlaKernelConfig
from flash_helpers.kernels.sm80_serve_mla.family import Sm80ServeMla
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from flash_helpers.kernels.sm90_serve_mla.config import HopperMlaKernelConfig
from tests.emulator.work import Work
from tests.serving.latent import LatentBatch
from tests.serving.problems import Batch

Reports = list[tuple[KernelConfig, LaunchReport]]
CAUSAL = ServeRule(causal=True)
WARP_ROWS, GROUP_ROWS, CHUNK, CHUNK_COLUMNS = 16, 64, 8, 64
MMA_KEYS, MMA_DEPTH, MMA_COLUMNS = 16, 16, 8  # of mma.m16n8k16: as B of P V, as depth, as columns
BATCHES = {
    "lengths": Batch([40, 1, 0, 70], [200, 33, 5, 70], heads=2, kv_heads=2),
    "causal, groups": Batch([40, 9], [100, 150], CAUSAL, heads=4, kv_heads=2),
    "window": Batch([50], [300], ServeRule(causal=True, window=(60, 0)), heads=2, kv_heads=2),
}
# Three chunks of four, and two.
WIDE: dict[str, Any] = {"heads": 2, "kv_heads": 2, "d": 192, "d_v": 128}
WIDE_BATCHES = {
    "wide": Batch([40, 1, 0, 70], [70, 33, 5, 70], **WIDE),
    "wide, causal, groups": Batch([40, 9], [80, 70], CAUSAL, heads=4, d=256),
    "wide, window": Batch([50], [200], ServeRule(causal=True, window=(60, 0)), **WIDE),
}
WIDE_DECODES = {
    "wide": Batch([1, 1, 1], [150, 5, 64], CAUSAL, heads=8, d=192, d_v=128),
    "wide, an idle warp": Batch([4, 4], [130, 131], CAUSAL, heads=10, d=200, d_v=64),
}
DECODES = {
    "one query": Batch([1, 1, 1], [300, 5, 128], CAUSAL, heads=8),
    "four queries": Batch([4, 4], [260, 131], CAUSAL, heads=8),
    "an idle warp": Batch([10], [200], CAUSAL, heads=8),
    "window": Batch([1, 1], [600, 70], ServeRule(causal=True, window=(200, 0)), heads=8),
}


@dataclass(frozen=True)
class Rows:
    """Rows of a tile and the keys [begin, end) that they see."""

    n: int
    begin: int
    end: int

    def blocks(self, keys: int) -> int:
        """Of so many keys, that begin anywhere."""
        return max(0, -(-self.end // keys) - self.begin // keys)


def tiles(batch: Batch, rows: int, group: int) -> list[Rows]:
    """Of one KV head: tiles of so many rows, of which `group` belong to a query."""
    found = []
    for i, (n_queries, n_keys) in enumerate(zip(batch.queries, batch.keys, strict=True)):
        seen = batch.rule.visible(n_queries, n_keys, batch.leftpad[i])
        for first in range(0, n_queries * group, rows):
            last = min(first + rows, n_queries * group)
            keys = (
                seen[first // group : (last - 1) // group + 1].any(dim=0).nonzero()[:, 0].tolist()
            )
            found.append(
                Rows(last - first, keys[0], keys[-1] + 1) if keys else Rows(last - first, 0, 0)
            )
    return found


def ampere_work(
    batch: Batch, config: AmpereServeKernelConfig, all_blocks: list[tuple[Rows, int]]
) -> Work:
    """Of tiles with their numbers of blocks: warps without rows copy keys, and multiply none. Of
    wide heads the chunks that there are are multiplied. New tokens' queries are copied, too, but
    those of wide heads."""
    columns = 2 * config.d_head
    query_rows = config.B_r if config.shares_keys() and config.d_head <= 128 else 0
    if config.d_head > 128:
        columns = sum(-(-d // CHUNK_COLUMNS) * CHUNK_COLUMNS for d in (batch.d, batch.d_v))
    per_block = (config.B_c // MMA_COLUMNS) * (columns // MMA_DEPTH)
    n_rows = sum(batch.queries) * batch.heads
    return Work(
        batch.kv_heads * sum(-(-t.n // WARP_ROWS) * n * per_block for t, n in all_blocks),
        async_copies=batch.kv_heads * sum(2 * config.B_c * n + query_rows for _, n in all_blocks)
        * config.d_head // CHUNK,
        global_stores=n_rows * (batch.d_v // 4 + 1),
    )  # fmt: skip


def check(wanted: Work, report: LaunchReport) -> None:
    """All but loads of metadata and queries."""
    done = Work.done(report)
    assert done == Work(
        wanted.matrix_instructions, wanted.bulk_loads, wanted.bulk_stores, wanted.async_copies,
        done.global_loads, wanted.global_stores,
    )  # fmt: skip


@pytest.mark.parametrize("name", BATCHES | WIDE_BATCHES)
def test_prompts(
    monkeypatch: pytest.MonkeyPatch,
    reports: list[tuple[AmpereServeKernelConfig, LaunchReport]],
    name: str,
) -> None:
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 1)  # keys are not split
    batch = (BATCHES | WIDE_BATCHES)[name]
    batch.check(batch.packed())
    ((config, report),) = reports
    found = [
        (t, t.blocks(config.B_c)) for t in tiles(batch, config.B_r, batch.heads // batch.kv_heads)
    ]
    check(ampere_work(batch, config, found), report)


@pytest.mark.parametrize("name", DECODES | WIDE_DECODES)
def test_decode(
    monkeypatch: pytest.MonkeyPatch,
    reports: list[tuple[AmpereServeKernelConfig, LaunchReport]],
    name: str,
) -> None:
    """One thread block has all tiles whole: their blocks begin with the first key that is seen."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 1)
    batch = (DECODES | WIDE_DECODES)[name]
    batch.check(batch.cached(max(batch.keys)))
    ((config, report),) = reports
    assert config.shares_keys()
    found = [
        (t, -(-(t.end - t.begin) // config.B_c))
        for t in tiles(batch, config.B_r, batch.heads // batch.kv_heads)
    ]
    check(ampere_work(batch, config, found), report)


@pytest.mark.parametrize(("heads", "queries"), [(16, 1), (4, 8), (128, 1)])
def test_latent_decode(
    monkeypatch: pytest.MonkeyPatch,
    reports: list[tuple[AmpereMlaKernelConfig, LaunchReport]],
    heads: int,
    queries: int,
) -> None:
    """A block is copied once for both matmuls, of which every row of a tile takes part."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 1)
    batch = LatentBatch([queries] * 3, [300, queries, 64], CAUSAL, heads=heads)
    batch.check(batch.cached(300))
    ((config, report),) = reports
    rows, keys = config.blocks()
    blocks = sum(-(-(t.end - t.begin) // keys) for t in tiles(batch, rows, heads))
    of_scores = keys // MMA_COLUMNS * (config.d_head // MMA_DEPTH)
    of_output = config.d_v() // MMA_COLUMNS * (keys // MMA_DEPTH)
    check(
        Work(
            blocks * rows // WARP_ROWS * (of_scores + of_output),
            async_copies=blocks * keys * config.d_head // CHUNK,
            global_stores=3 * queries * heads * (config.d_v() // 4 + 1),
        ),
        report,
    )


@pytest.mark.parametrize(("heads", "queries"), [(64, 1), (128, 1), (24, 3)])
@pytest.mark.parametrize("page", [16, 64])
def test_latent_decode_on_hopper(
    monkeypatch: pytest.MonkeyPatch,
    reports: list[tuple[HopperMlaKernelConfig, LaunchReport]],
    heads: int,
    queries: int,
    page: int,
) -> None:
    """A block is copied once for both matmuls, in parts and chunks, or, where it lies in one page,
    in both halves of the values and what rotates: one group's warps multiply scores, and those of
    both a half of the output each. All rows of a tile are copied, of queries that exist or not."""
    monkeypatch.setattr(Sm80ServeMla, "preference", lambda *_: -1)
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 1)
    batch = LatentBatch([queries] * 3, [300, queries, 64], CAUSAL, heads=heads)
    batch.check(batch.paged(page))
    ((config, report),) = reports
    rows, keys = config.blocks()
    blocks = sum(t.blocks(keys) for t in tiles(batch, rows, heads))
    of_scores = config.d_head // MMA_DEPTH * config.n_warps // 2
    of_output = keys // MMA_DEPTH * config.n_warps
    parts = keys // config.part_rows(page)
    copies = 3 if parts == 1 else parts * config.d_head // CHUNK_COLUMNS
    check(
        Work(
            blocks * (of_scores + of_output),
            async_copies=len(tiles(batch, rows, heads)) * rows * config.d_head // CHUNK,
            bulk_loads=blocks * copies,
            global_stores=3 * queries * heads * (config.d_v() // 4 + 1),
        ),
        report,
    )


@pytest.mark.parametrize("name", ["full", "causal", "window"])
@pytest.mark.parametrize("page", [0, 16, 256])
def test_prompts_on_hopper(
    monkeypatch: pytest.MonkeyPatch,
    reports: list[tuple[HopperServeKernelConfig, LaunchReport]],
    name: str,
    page: int,
) -> None:
    """Blocks that a group does not see are loaded for the other, and not multiplied. Out of pages a
    block is loaded in parts, chunk by chunk."""
    monkeypatch.setattr(Sm80Serve, "preference", lambda *_: -1)
    rule = {
        "full": ServeRule(),
        "causal": CAUSAL,
        "window": ServeRule(causal=True, window=(150, 0)),
    }[name]
    batch = Batch([256, 384], [256, 500], rule, heads=2, kv_heads=2)
    batch.check(batch.packed_over_pages(page) if page else batch.packed())
    ((config, report),) = reports
    rows = config.block_m()
    parts = config.block_n // config.part_rows(page) * config.forward().n_chunks() if page else 1
    groups = tiles(batch, GROUP_ROWS, 1)  # each loads its Q
    loads = len(groups) + sum(2 * parts * t.blocks(config.block_n) for t in tiles(batch, rows, 1))
    steps = config.d_head // MMA_DEPTH + config.block_n // MMA_KEYS
    n_rows = sum(batch.queries)
    check(
        Work(
            batch.heads * 4 * steps * sum(t.blocks(config.block_n) for t in groups),
            bulk_loads=batch.heads * loads,
            bulk_stores=batch.heads * n_rows // WARP_ROWS,
            global_stores=batch.heads * n_rows,
        ),
        report,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_one_sequence(reports: Reports, causal: bool) -> None:
    """As many matrix instructions and stores as the dense kernels, whose work is counted exactly
    (tests/emulator/test_backward_counts.py)."""
    starts = torch.tensor([0, 256], dtype=torch.int32)
    varlen: Any = flash_attention.flash_attn_varlen_func
    attention: Any = flash_attention.flash_attn_func
    d_o = torch.randn(256, 2, 64).half()

    def work(attend: Callable[..., Any], shape: tuple[int, ...]) -> list[tuple[int, int]]:
        reports.clear()
        x = [torch.randn(shape).half().requires_grad_() for _ in range(3)]
        attend(*x).backward(d_o.view(shape))
        return [(r.mma_instructions, r.global_stores) for c, r in reports if c.GRADIENTS]

    packed = work(lambda *x: varlen(*x, starts, starts, 256, 256, causal=causal), (256, 2, 64))
    dense = work(lambda *x: attention(*x, causal=causal), (1, 256, 2, 64))
    assert len(packed) == 3 and packed == dense


@pytest.mark.parametrize(("wanted", "of_keys"), [("qkv", 5), ("k", 3), ("v", 2)])
@pytest.mark.parametrize("shape", [(128, 1, 192), (1, 128, 1, 192)], ids=["packed", "dense"])
def test_gradients_of_wide_heads(
    reports: Reports, wanted: str, of_keys: int, shape: tuple[int, ...]
) -> None:
    """dV takes two matmuls, then dK three; what is not wanted takes none."""
    starts = () if len(shape) == 4 else (torch.tensor([0, 128], dtype=torch.int32),) * 2
    attend: Any = (
        flash_attention.flash_attn_varlen_func if starts else flash_attention.flash_attn_func
    )
    x = [torch.randn(shape).half().requires_grad_(name in wanted) for name in "qkv"]
    attend(*x, *starts).backward(torch.randn(shape).half())
    each = 128 * 128 * 192 // (WARP_ROWS * MMA_COLUMNS * MMA_DEPTH)
    found = [report.mma_instructions for config, report in reports if config.GRADIENTS]
    expected = [0] + [of_keys * each] * (wanted != "q") + [3 * each] * ("q" in wanted)
    assert found == expected
