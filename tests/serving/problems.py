"""Batches of sequences for serving calls, in every layout, with NaN wherever no query looks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.serving import ServeRule, attend_sequence
from flash_helpers.check.tolerance import compare
from flash_helpers.kernels.contract import KernelConfig

Config = TypeVar("Config", bound=KernelConfig)

NAN = math.nan
FULL = ServeRule()
EVERYTHING = ServeRule(causal=True, window=(50, -1), softcap=3.0, scale=0.2)
# Entries of a table that nobody follows.
WILD = (-1, 2**31 - 1, 10**6)


@dataclass
class Batch:
    """Sequences of these numbers of queries and keys, with normally distributed tensors that a test
    may change. Of each sequence, keys that no query sees are NaN."""

    queries: list[int]
    keys: list[int]
    rule: ServeRule = FULL
    heads: int = 4
    kv_heads: int = 2
    d: int = 64
    d_v: int = 0
    dtype: torch.dtype = torch.float16
    leftpad: list[int] = field(default_factory=list)
    sinks: torch.Tensor | None = None
    seed: int = 0
    device: str = "cpu"
    q: list[torch.Tensor] = field(init=False)
    k: list[torch.Tensor] = field(init=False)
    v: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator(self.device).manual_seed(self.seed)

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator, device=self.device).to(self.dtype)

        self.d_v = self.d_v or self.d
        self.leftpad = self.leftpad or [0] * len(self.keys)
        self.q = [draw(n, self.heads, self.d) for n in self.queries]
        self.k = [draw(n, self.kv_heads, self.d) for n in self.keys]
        self.v = [draw(n, self.kv_heads, self.d_v) for n in self.keys]
        for i in range(len(self.keys)):
            unseen = ~self.seen(i)
            self.k[i][unseen] = NAN
            self.v[i][unseen] = NAN

    def seen(self, i: int) -> torch.Tensor:
        """Which keys of a sequence some query sees."""
        visible = self.rule.visible(
            self.queries[i], self.keys[i], self.leftpad[i], self.q[i].device
        )
        return visible.any(dim=0)

    # The three layouts. Keywords go to the function.

    def packed(self, **keywords: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(o, lse) of each sequence, from flash_attn_varlen_func: all packed, with rows before the
        first sequence and after the last."""
        q, starts = stacked(self.q)
        k, key_starts = stacked(self.k)
        v, _ = stacked(self.v)
        found: Any = flash_attention.flash_attn_varlen_func(
            q, k, v, starts, key_starts, return_softmax_lse=True, **self._options(keywords)
        )
        return of_sequences(found, starts)

    def cached(self, capacity: int, **keywords: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The same from flash_attn_with_kvcache; every sequence has as many queries."""
        caches = [
            x[0].new_full((len(self.keys), capacity, *x[0].shape[1:]), NAN)
            for x in (self.k, self.v)
        ]
        for cache, rows in zip(caches, (self.k, self.v), strict=True):
            for i, x in enumerate(rows):
                cache[i, : len(x)] = x
        return self.with_cache(*caches, **keywords)

    def paged(self, page: int, **keywords: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The same with pages in any order."""
        k, v, table = self.pages(page)
        return self.with_cache(k, v, block_table=table, **keywords)

    def packed_over_pages(
        self, page: int, **keywords: Any
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """From flash_attn_varlen_func: packed queries, keys in pages, lengths from cu_seqlens_k."""
        q, starts = stacked(self.q)
        _, key_starts = stacked(self.k)
        k, v, table = self.pages(page)
        found: Any = flash_attention.flash_attn_varlen_func(
            q, k, v, starts, key_starts, block_table=table, return_softmax_lse=True,
            **self._options(keywords),
        )  # fmt: skip
        return of_sequences(found, starts)

    def with_cache(
        self, k: torch.Tensor, v: torch.Tensor, **keywords: Any
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        keywords.setdefault("cache_seqlens", ints(self.keys, self.device))
        found: Any = flash_attention.flash_attn_with_kvcache(
            torch.stack(self.q), k, v, return_softmax_lse=True, **self._options(keywords)
        )
        return list(zip(*found, strict=True))

    def pages(self, page: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(k, v, table): every page that no query looks into has a wild entry in its place."""
        per_sequence = [-(-n // page) for n in self.keys]
        n_pages = sum(per_sequence) + 2
        order = torch.randperm(n_pages, generator=torch.Generator().manual_seed(self.seed)).tolist()
        k, v = (
            self.k[0].new_full((n_pages, page, self.kv_heads, d), NAN) for d in (self.d, self.d_v)
        )
        table = torch.empty((len(self.keys), max(per_sequence) + 1), dtype=torch.int32)
        for i, n in enumerate(self.keys):
            seen = self.seen(i).cpu()
            for column in range(table.shape[1]):
                rows = slice(column * page, min((column + 1) * page, n))
                if not seen[rows].any():
                    table[i, column] = WILD[(i + column) % len(WILD)]
                    continue
                table[i, column] = at = order.pop()
                k[at, : rows.stop - rows.start] = self.k[i][rows]
                v[at, : rows.stop - rows.start] = self.v[i][rows]
        return k, v, table.to(self.device)

    def _options(self, keywords: dict[str, Any]) -> dict[str, Any]:
        rule = self.rule
        options: dict[str, Any] = {
            "causal": rule.causal, "window_size": rule.window, "softcap": rule.softcap,
            "softmax_scale": rule.scale, "s_aux": self.sinks,
        }  # fmt: skip
        if any(self.leftpad):
            options["cache_leftpad"] = ints(self.leftpad, self.device)
        return options | keywords

    def reference(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return attend_sequence(
            self.q[i], self.k[i], self.v[i], self.rule, leftpad=self.leftpad[i], sinks=self.sinks
        )

    def check(self, results: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """The row rule for every sequence, and its log-sum-exps to 1e-4."""
        assert len(results) == len(self.queries)
        for i, (o, lse) in enumerate(results):
            if not self.queries[i]:
                continue
            expected, expected_lse = self.reference(i)
            found = compare(o, expected)
            assert found.passed, f"sequence {i}: {found.describe()}"
            torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-4, atol=1e-4)


def of_sequences(
    found: tuple[torch.Tensor, torch.Tensor], starts: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(o, lse) of each, out of packed ones."""
    o, lse = found
    return [(o[a:b], lse[:, a:b]) for a, b in itertools.pairwise(starts)]


def ints(values: list[Any], device: str | torch.device = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def stacked(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed with 3 rows of NaN before and 2 after, and where each sequence begins."""
    before, after = (rows[0].new_full((n, *rows[0].shape[1:]), NAN) for n in (3, 2))
    ends = torch.tensor([len(x) for x in rows]).cumsum(0) + 3
    return torch.cat([before, *rows, after]), ints([3, *ends.tolist()], rows[0].device)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """torch.empty() fills what it returns with NaN: outputs and scratch memory."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def same_bits(a: Any, b: Any) -> bool:
    """Of results of two calls."""
    return all(
        torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for one, other in zip(a, b, strict=True)
        for x, y in zip(one, other, strict=True)
    )


def of_one_type(configs: Sequence[Config]) -> list[Config]:
    """Of those that differ in the data type alone the one that other tests of a head dimension
    compile as well, or else the other one."""
    return [c for c in configs if (c.dtype is DType.FP16) == (c.d_head in (64, 128))]


def each(configs: Sequence[KernelConfig]) -> pytest.MarkDecorator:
    """A test of each `config`, a slow one but for `of_one_type`."""
    some = of_one_type(configs)
    return pytest.mark.parametrize(
        "config",
        [pytest.param(c, id=str(c), marks=() if c in some else pytest.mark.slow) for c in configs],
    )
