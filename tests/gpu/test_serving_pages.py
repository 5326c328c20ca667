"""Prompts behind paged caches on a GPU: every layout that tensor maps can express."""

from __future__ import annotations

import pytest
import torch

from flash_helpers.check.serving import ServeRule
from tests.serving.problems import NAN, Batch, ints, same_bits
from tests.serving.test_hopper_pages import LAYOUTS, laid_out

pytestmark = pytest.mark.gpu

CAUSAL = ServeRule(causal=True)
RULES = [CAUSAL, ServeRule(window=(1023, 0)), ServeRule(window=(127, 30)),
         ServeRule(causal=True, softcap=50.0)]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("page", [8, 16, 24, 64, 128, 192, 256, 1024])
def test_pages_are_the_same_as_packed_keys(
    page: int, rule: ServeRule, d: int, dtype: torch.dtype
) -> None:
    """Wild entries and NaN wherever no query looks."""
    batch = Batch(
        [2048, 1, 513, 0, 64, 300], [5000, 4097, 513, 7, 3000, 9000], rule, heads=8, d=d,
        dtype=dtype, device="cuda",
    )  # fmt: skip
    found = batch.packed_over_pages(page)
    batch.check(found)
    assert same_bits(found, batch.packed())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d", [64, 96, 128, 192, 256])
def test_layouts(layout: str, d: int) -> None:
    batch = Batch([700, 700], [3000, 701], CAUSAL, heads=8, d=d, device="cuda")
    k, v, table = batch.pages(16)
    batch.check(batch.with_cache(*laid_out(k, v, layout), block_table=table))


@pytest.mark.parametrize("d", [64, 96, 128, 192, 256])
def test_places_in_a_cache(d: int) -> None:
    batch = Batch([300, 300], [2000, 301], CAUSAL, heads=8, d=d, device="cuda")
    caches = [torch.full((4, 2001, 2, d), NAN, dtype=torch.float16, device="cuda")
              for _ in range(2)]  # fmt: skip
    for cache, rows in zip(caches, (batch.k, batch.v), strict=True):
        for slot, x in zip((3, 1), rows, strict=True):
            cache[slot, : len(x)] = x
    batch.check(batch.with_cache(*caches, cache_batch_idx=ints([3, 1], "cuda")))


def test_the_same_bits_a_hundred_times() -> None:
    batch = Batch([600] * 4, [3000, 600, 900, 16000], CAUSAL, heads=16, d=128, device="cuda")
    first = batch.paged(16)
    assert all(same_bits(first, batch.paged(16)) for _ in range(100))
