"""Launches of Hopper's kernels for narrow windows and of those that cap scores, for a tool that
watches them (serving_sanitize.sh): no reference is computed, and nothing is compared.

    python -m tests.gpu.serving_launches

Prints the kernel of each launch, and fails if one is not of the kinds that it is for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import torch

from flash_attention.serving import launch
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from tests.serving.problems import Batch

WITHIN, BEYOND = 50.0, 0.5  # caps that normally distributed scores stay within, and do not
# Ends within blocks and tiles, idle groups, no keys; with 16 heads several tiles a thread block.
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
        chosen = []

        def choose(call: launch.Call) -> object:
            chosen.append(launch_choose(call))
            return chosen[-1]

        launch_choose = launch.choose
        batch = Batch(*LENGTHS, self.rule, self.heads, self.kv_heads, self.d, dtype=dtype,
                      device="cuda")  # fmt: skip
        batch.sinks = torch.randn(self.heads, device="cuda")
        with mock.patch.object(launch, "choose", choose):
            if self.page:
                batch.packed_over_pages(self.page)
            else:
                batch.packed()
        torch.cuda.synchronize()
        (config,) = chosen
        assert isinstance(config, HopperServeKernelConfig), config
        return config


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


def main() -> int:
    for case in narrow():
        config = case.run(torch.bfloat16)
        print(config, case.rule, case.page, flush=True)
        assert config.narrow_window
    for case in capped():
        config = case.run(torch.bfloat16)
        print(config, case.rule, case.page, flush=True)
        assert not config.narrow_window and not config.pack_gqa
    return 0


if __name__ == "__main__":
    sys.exit(main())
