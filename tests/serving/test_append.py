"""Appending to a cache and rotary embeddings: every bit of the cache, and what is attended to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import flash_attention
from flash_helpers.check.serving import ServeRule
from tests.serving.problems import NAN, Batch, ints, stacked

CAUSAL = ServeRule(causal=True)
attend: Any = flash_attention.flash_attn_with_kvcache


@dataclass
class Rotary:
    dim: int
    interleaved: bool
    cos: torch.Tensor
    sin: torch.Tensor

    @classmethod
    def draw(cls, dim: int, interleaved: bool, dtype: torch.dtype = torch.float16) -> Rotary:
        angles = torch.randn((200, dim // 2), generator=torch.Generator().manual_seed(1))
        return cls(dim, interleaved, angles.cos().to(dtype), angles.sin().to(dtype))

    def of(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rows (n, heads, d) in fp32, rounded once. Products of two numbers of 16 bits are exact
        in fp32."""
        cos, sin = (t[positions].float()[:, None].to(x.device) for t in (self.cos, self.sin))
        y, half = x.float(), self.dim // 2
        first = slice(0, self.dim, 2) if self.interleaved else slice(half)
        second = slice(1, self.dim, 2) if self.interleaved else slice(half, self.dim)
        turned = y.clone()
        turned[..., first] = y[..., first] * cos - y[..., second] * sin
        turned[..., second] = y[..., second] * cos + y[..., first] * sin
        return turned.to(x.dtype)

    def options(self, device: str) -> dict[str, Any]:
        return {"rotary_cos": self.cos.to(device), "rotary_sin": self.sin.to(device),
                "rotary_interleaved": self.interleaved}  # fmt: skip


def contiguous(slots: int, capacity: int, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    k, v = (
        torch.full(
            (slots, capacity, batch.kv_heads, d), NAN, dtype=batch.dtype, device=batch.device
        )
        for d in (batch.d, batch.d_v)
    )
    return k, v


def interleaved(slots: int, capacity: int, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V in one allocation, as vLLM has them."""
    both = torch.full((slots, capacity, 2, batch.kv_heads, batch.d), NAN, dtype=batch.dtype)
    return both[:, :, 0], both[:, :, 1]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))


def append(
    batch: Batch,
    new: list[int],
    *,
    page: int = 0,
    capacity: int = 128,
    rotary: Rotary | None = None,
    packed: bool = False,
    shift: int = 0,
    memory: Callable[[int, int, Batch], tuple[torch.Tensor, torch.Tensor]] = contiguous,
    **options: Any,
) -> None:
    """Calls with the last rows of every sequence as new ones, and checks the whole cache and the
    result. `page` 0: a cache whose slots are in another order. `shift`: of rotary positions."""
    rows = page or capacity
    n_rows = len(new) * (capacity // rows)
    table = torch.randperm(n_rows, generator=torch.Generator().manual_seed(3))
    table = table.view(len(new), -1).int()
    k, v = memory(n_rows, rows, batch)
    before = [length - added for length, added in zip(batch.keys, new, strict=True)]
    given = [x[start:].clone() for x, start in zip(batch.k, before, strict=True)]
    queries = [x.clone() for x in batch.q]
    if rotary is not None:
        local = batch.rule.causal or batch.rule.window != (-1, -1)
        for i, start in enumerate(before):
            places = start + shift + torch.arange(200)
            batch.k[i][start:] = rotary.of(given[i], places[: new[i]])
            steps = torch.arange(len(queries[i])) if local else torch.zeros(len(queries[i])).long()
            batch.q[i] = rotary.of(queries[i], start + shift + steps)
        options |= rotary.options(batch.device)
        if shift:
            options["rotary_seqlens"] = ints(before, batch.device) + shift
    expected = k.clone(), v.clone()
    for i, start in enumerate(before):
        for key in range(batch.keys[i]):
            at = int(table[i, key // rows]), key % rows
            if key < start:
                k[at], v[at] = batch.k[i][key], batch.v[i][key]
            expected[0][at], expected[1][at] = batch.k[i][key], batch.v[i][key]
    values = [x[start:] for x, start in zip(batch.v, before, strict=True)]
    if packed:
        k_new, starts = stacked(given)
        v_new, _ = stacked(values)
        options["cu_seqlens_k_new"] = starts
        q, options["cu_seqlens_q"] = stacked(queries)
    else:
        q, k_new, v_new = map(torch.stack, (queries, given, values))
    table = table.to(batch.device)
    options |= {"block_table": table} if page else {"cache_batch_idx": table[:, 0].contiguous()}
    if any(batch.leftpad):
        options["cache_leftpad"] = ints(batch.leftpad, batch.device)
    found: Any = attend(
        q, k, v, k_new, v_new, cache_seqlens=ints(before, batch.device), return_softmax_lse=True,
        causal=batch.rule.causal, window_size=batch.rule.window, **options,
    )  # fmt: skip
    assert same(k, expected[0]) and same(v, expected[1])
    o, lse = found
    if packed:
        parts = [slice(*ends) for ends in itertools.pairwise(options["cu_seqlens_q"].tolist())]
        batch.check([(o[part], lse[:, part]) for part in parts])
    else:
        batch.check(list(zip(o, lse, strict=True)))


@pytest.mark.parametrize("page", [0, 1, 8, 32])
@pytest.mark.parametrize("rotary", [None, Rotary.draw(64, True), Rotary.draw(32, False)], ids=str)
def test_case_16_new_keys_are_written_and_seen(page: int, rotary: Rotary | None) -> None:
    append(Batch([3, 3, 3], [40, 3, 77], CAUSAL), [3, 3, 3], page=page, rotary=rotary)


@pytest.mark.parametrize("num_splits", [1, 3])
def test_with_splits(num_splits: int) -> None:
    append(Batch([1, 1], [100, 128], CAUSAL, d=128, heads=8), [1, 1], num_splits=num_splits)


@pytest.mark.parametrize("rule", [ServeRule(), CAUSAL, ServeRule(window=(30, -1))], ids=str)
@pytest.mark.parametrize("style", [True, False])
def test_case_17_positions_of_queries(rule: ServeRule, style: bool) -> None:
    """All at the first new key, but for causal masks and windows."""
    batch = Batch([5, 5], [40, 9], rule, d=128, d_v=64, dtype=torch.bfloat16)
    append(batch, [5, 5], rotary=Rotary.draw(128, style, torch.bfloat16))


def test_packed_rows_of_any_number() -> None:
    batch = Batch([4, 0, 1, 2], [40, 9, 77, 6], CAUSAL)
    batch.k[1], batch.v[1] = (torch.randn(9, 2, 64).half() for _ in range(2))
    append(batch, [7, 2, 0, 6], packed=True, page=8, rotary=Rotary.draw(16, False))


def test_positions_may_be_other_than_places() -> None:
    append(Batch([2, 2], [30, 12], CAUSAL), [2, 2], rotary=Rotary.draw(48, True), shift=50)


def test_left_padding() -> None:
    batch = Batch([2, 2], [30, 12], CAUSAL, leftpad=[4, 9])
    append(batch, [2, 2], rotary=Rotary.draw(64, False), page=16)


def test_keys_and_values_in_one_allocation() -> None:
    append(Batch([2, 2], [30, 12], CAUSAL), [2, 2], memory=interleaved, page=16)


def test_case_15_a_cache_that_becomes_full() -> None:
    append(Batch([3, 3], [32, 32], CAUSAL), [3, 3], capacity=32)


@pytest.mark.parametrize("page", [0, 16])
def test_case_15_without_room_nothing_else_is_written(page: int) -> None:
    """Two rows too many; a page behind the table, and the next slot, stay as they are."""
    batch = Batch([4, 4], [32, 32])
    shape = (6, page, 2, 64) if page else (3, 32, 2, 64)
    k, v = (torch.full(shape, 7.0, dtype=torch.float16) for _ in range(2))
    where = {"block_table": ints([[0, 2], [4, 5]])} if page else {"cache_batch_idx": ints([0, 2])}
    rows = torch.ones(2, 4, 2, 64, dtype=torch.float16)
    attend(torch.stack(batch.q), k, v, rows, rows, cache_seqlens=30, **where)
    written = torch.zeros(k.shape[:2], dtype=torch.bool)
    for last in (2, 5) if page else (0, 2):
        written[last, -2:] = True
    for cache in (k, v):
        assert (cache[written] == 1.0).all() and (cache[~written] == 7.0).all()


def test_one_length_for_all() -> None:
    batch = Batch([1, 1], [20, 20], CAUSAL)
    k, v = contiguous(2, 32, batch)
    for i in range(2):
        k[i, :19], v[i, :19] = batch.k[i][:19], batch.v[i][:19]
    new = [torch.stack([x[19:] for x in rows]) for rows in (batch.k, batch.v)]
    found: Any = attend(
        torch.stack(batch.q), k, v, *new, cache_seqlens=19, causal=True, return_softmax_lse=True
    )
    batch.check(list(zip(*found, strict=True)))


def test_new_rows_that_a_kernel_cannot_read_are_copied() -> None:
    batch = Batch([1], [20], CAUSAL)
    k, v = contiguous(1, 32, batch)
    wide = torch.randn(1, 1, 2, 65).half()
    odd = wide[..., 1:]
    attend(torch.stack(batch.q), k, v, odd, odd, cache_seqlens=ints([19]))
    assert torch.equal(k[:, 19], odd[:, 0]) and torch.equal(v[:, 19], odd[:, 0])
