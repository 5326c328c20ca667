"""Launches of the kernels for new tokens, of those for latent caches, of Hopper's for narrow
windows and those that cap scores, and of those for gradients of packed sequences, for a tool that
watches them (sanitize.sh): no reference is computed, and nothing is compared.

    python -m tests.gpu.serving_launches [KIND...]

Kinds are new-tokens, latent, prompts and gradients; without any, all. Prints the kernel of each
launch, and fails if one is not of the kinds that it is for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar
from unittest import mock

import torch

from flash_attention.serving import gradients, launch
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.serve_config import ServeKernelConfig
from flash_helpers.kernels.sm80_serve.config import AmpereServeKernelConfig
from flash_helpers.kernels.sm90_bwd_fused_serve.config import FusedServeBackwardKernelConfig
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from tests.serving.latent import LatentBatch
from tests.serving.packed import Packed
from tests.serving.problems import Batch

KINDS = ("new-tokens", "latent", "prompts", "gradients")
WITHIN, BEYOND = 50.0, 0.5  # caps that normally distributed scores stay within, and do not
# Ends within blocks and tiles, idle groups, no keys; with 16 heads several tiles a thread block.
EQUAL, DIFFERENT = (300,), (300, 5, 0, 420, 129, 128)  # of caches, whose blocks have 64 to 256
LENGTHS = ([1100, 64, 700, 0, 300], [1500, 64, 700, 5, 900])


@dataclass(frozen=True)
class Case:
    d: int
    rule: ServeRule
    heads: int = 16
    kv_heads: int = 2
    page: int = 0  # 0: packed keys

    def run(self, dtype: torch.dtype) -> HopperServeKernelConfig:
        """Launches it. The kernel that it got."""
        batch = Batch(*LENGTHS, self.rule, self.heads, self.kv_heads, self.d, dtype=dtype,
                      device="cuda")  # fmt: skip
        batch.sinks = torch.randn(self.heads, device="cuda")
        with noted() as chosen:
            if self.page:
                batch.packed_over_pages(self.page)
            else:
                batch.packed()
        (config,) = chosen
        assert isinstance(config, HopperServeKernelConfig), config
        return config


@dataclass(frozen=True)
class NewTokens:
    """Sequences with caches of equal lengths, whose first blocks are copied before any length is
    known, or of some that differ."""

    n: int
    d: int = 128
    n_queries: int = 1
    heads: int = 64
    kv_heads: int = 8
    page: int = 0  # 0: contiguous caches
    equal: bool = True

    def run(self, dtype: torch.dtype) -> list[ServeKernelConfig]:
        lengths = EQUAL if self.equal else DIFFERENT
        keys = [lengths[i % len(lengths)] for i in range(self.n)]
        batch = Batch([self.n_queries] * self.n, keys, ServeRule(causal=True), self.heads,
                      self.kv_heads, self.d, dtype=dtype, device="cuda")  # fmt: skip
        with noted() as chosen:
            if self.page:
                batch.paged(self.page)
            else:
                batch.cached(max(DIFFERENT))
        assert all(isinstance(config, AmpereServeKernelConfig) for config in chosen), chosen
        return chosen


@dataclass(frozen=True)
class Latent:
    """Sequences of one query with a latent cache."""

    n: int
    heads: int

    def run(self, dtype: torch.dtype) -> list[ServeKernelConfig]:
        keys = [DIFFERENT[i % len(DIFFERENT)] for i in range(self.n)]
        batch = LatentBatch([1] * self.n, keys, heads=self.heads, dtype=dtype, device="cuda")
        with noted() as chosen:
            batch.paged(64)
        return chosen


@dataclass(frozen=True)
class Gradients:
    """Packed sequences; deterministic ones are the Ampere family's."""

    d: int
    rule: ServeRule
    deterministic: bool
    LENGTHS: ClassVar = ([300, 0, 1, 200, 64], [333, 9, 130, 200, 40])

    def run(self, dtype: torch.dtype) -> BackwardKernelConfig:
        packed = Packed(*self.LENGTHS, self.rule, 4, 2, self.d, dtype=dtype, device="cuda")
        least = f"{FusedServeBackwardKernelConfig.__module__}.LEAST_MEAN_ROWS"
        with noted(gradients) as chosen, mock.patch(least, 0):
            packed.call(deterministic=self.deterministic)
        config = chosen[-1]
        assert isinstance(config, BackwardKernelConfig), config
        return config


@contextmanager
def noted(module: ModuleType = launch) -> Iterator[list[Any]]:
    """The kernels that calls get of a module meanwhile, which have ended behind it; none of a call
    like one before, which gets the same."""
    chosen: list[Any] = []
    its_choose = module.choose

    def choose(*given: Any, **named: Any) -> Any:
        chosen.append(its_choose(*given, **named))
        return chosen[-1]

    with mock.patch.object(module, "choose", choose):
        yield chosen
    torch.cuda.synchronize()


def narrow() -> Iterator[Case]:
    for window in ((127, 0), (511, 0), (200, 100)):
        for page in (0, 16, 64):
            yield Case(64, ServeRule(window=window), page=page)
    yield Case(64, ServeRule(window=(127, 0)), heads=8, kv_heads=8)
    yield Case(64, ServeRule(window=(127, 0), softcap=WITHIN))
    yield Case(64, ServeRule(window=(511, 0), softcap=BEYOND), page=16)


def capped() -> Iterator[Case]:
    for d in (64, 96, 128, 192, 256):
        for softcap in (WITHIN, BEYOND):
            for page in (0, 16) if d in (128, 256) else (0,):
                yield Case(d, ServeRule(window=(800, 0), softcap=softcap), page=page)
    for d in (128, 256):
        yield Case(d, ServeRule(causal=True, softcap=WITHIN), heads=8, kv_heads=8, page=64)
        yield Case(d, ServeRule(softcap=BEYOND))


def new_tokens() -> Iterator[NewTokens]:
    for page in (0, 16):
        for equal in (True, False):
            for n_queries in (1, 4):
                # In pairs from 256 KV heads on.
                for n in (16, 32):
                    yield NewTokens(n, n_queries=n_queries, page=page, equal=equal)
                yield NewTokens(16, d=64, n_queries=n_queries, page=page, equal=equal)
                yield NewTokens(16, d=256, n_queries=n_queries, page=page, equal=equal)
            yield NewTokens(1, page=page, equal=equal)  # in parts that are merged
            yield NewTokens(4, heads=32, kv_heads=1, page=page, equal=equal)


def latent() -> Iterator[Latent]:
    for heads in (16, 128):
        for n in (1, 5):  # splits that another kernel merges, and shares
            yield Latent(n, heads)


def packed_gradients() -> Iterator[Gradients]:
    for d in (64, 96, 128, 192, 256):
        for rule in (ServeRule(), ServeRule(causal=True), ServeRule(window=(100, 30))):
            for deterministic in (False, True) if d <= 128 else (True,):
                yield Gradients(d, rule, deterministic)
    yield Gradients(128, ServeRule(causal=True, softcap=BEYOND), deterministic=False)


def main(kinds: Sequence[str]) -> int:
    if "new-tokens" in kinds:
        for tokens in new_tokens():
            print(tokens.run(torch.bfloat16), tokens, flush=True)
    if "latent" in kinds:
        for case in latent():
            print(case.run(torch.bfloat16), case, flush=True)
    if "prompts" in kinds:
        prompts()
    if "gradients" in kinds:
        for wanted in packed_gradients():
            print(wanted.run(torch.bfloat16), wanted, flush=True)
    return 0


def prompts() -> None:
    for case in narrow():
        config = case.run(torch.bfloat16)
        print(config, case.rule, case.page, flush=True)
        assert config.narrow_window
    for case in capped():
        config = case.run(torch.bfloat16)
        print(config, case.rule, case.page, flush=True)
        assert not config.narrow_window and not config.pack_gqa


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or KINDS))
