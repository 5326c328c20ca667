"""Serving calls for each family's kernels: what every one of their barriers and waits is for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.serve_config import ServeKernelConfig
from flash_helpers.kernels.sm80_serve_mla.config import AmpereMlaKernelConfig
from flash_helpers.kernels.sm90_bwd_fused_serve.config import FusedServeBackwardKernelConfig
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from tests.serving.latent import LatentBatch
from tests.serving.packed import Packed, hopper_gradients
from tests.serving.problems import EVERYTHING, FULL, Batch

from .replay import Launch, recorded, served_by

CAUSAL = ServeRule(causal=True)
WITHIN = ServeRule(causal=True, softcap=15.0)  # of normally distributed scores
CAPPED = ServeRule(causal=True, window=(20, -1), softcap=2.0, scale=0.2)

# The multiprocessors of the GPU, and a call whose result is checked.
Call = tuple[int, Callable[[Callable[..., Batch]], None]]

PAGES = 16, 24  # the size that has a loop of its own, and one that begins within blocks


@dataclass
class OverPages(Batch):
    """Whose keys lie in pages, wherever they are packed otherwise."""

    page: int = PAGES[0]

    def packed(self, **keywords: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return self.packed_over_pages(self.page, **keywords)


def _packed(num_splits: int, *shape: object, **named: object) -> Callable[..., None]:
    def run(batch: Callable[..., Batch]) -> None:
        made = batch(*shape, **named)
        made.check(made.packed(num_splits=num_splits))

    return run


def _paged(page: int, *shape: object, **named: object) -> Callable[..., None]:
    def run(batch: Callable[..., Batch]) -> None:
        made = batch(*shape, **named)
        made.check(made.paged(page))

    return run


def _cached(capacity: int, *shape: object, **named: object) -> Callable[..., None]:
    def run(batch: Callable[..., Batch]) -> None:
        made = batch(*shape, **named)
        made.check(made.cached(capacity))

    return run


# One tile of many parts, merged by groups; shares of several tiles, and tiles of several shares,
# one without keys; more blocks of keys than stages; windows, pages, sinks; a tile that is full;
# sequences that all warps count together; first blocks that are copied before it is known where
# they lie, rightly, and in vain by shares that have nothing.
DECODES: tuple[Call, ...] = (
    (40, _packed(0, [1], [1400], heads=32, kv_heads=1)),
    (2, _packed(0, [4, 4, 4], [700, 3, 0], CAUSAL, heads=8, kv_heads=1)),
    (1, _packed(0, [1, 2], [900, 300], heads=8, kv_heads=2)),
    (5, _packed(0, [3, 0, 5], [300, 65, 211], EVERYTHING, heads=6, leftpad=[160, 0, 20],
                sinks=torch.linspace(-1, 1, 6))),
    (5, _paged(24, [16, 16], [600, 90], CAUSAL, heads=8)),
    (2, _packed(0, [1] * 40, [i * 7 % 50 for i in range(40)], heads=2)),
    (1, _cached(400, [2, 2], [400, 400], CAUSAL, heads=8, kv_heads=1)),
    (4, _cached(200, [1] * 8, [100, *[0] * 7], heads=8, kv_heads=1)),
)  # fmt: skip
PROMPTS: tuple[Call, ...] = (
    (1, _packed(0, [130], [400], heads=2)),
    (1, _packed(0, [70, 0, 19], [300, 65, 19], EVERYTHING, heads=6, leftpad=[160, 0, 0],
                sinks=torch.linspace(-1, 1, 6))),
    (1, _packed(3, [40, 1], [500, 130], CAUSAL, heads=4)),
)  # fmt: skip


def _outgrown(rule: ServeRule) -> Callable[[Callable[..., Batch]], None]:
    """Scores that outgrow what was assumed of them: by a little, and by more than fp32 holds, or
    than a soft cap of 30, which is a polynomial up to there."""

    def run(batch: Callable[..., Batch]) -> None:
        made = batch([70], [1000], rule, heads=1, kv_heads=1)
        made.q[0][..., 0] = 8.0
        made.k[0][640, :, 0] = 16.0
        made.k[0][300, :, 0] = 200.0
        made.check(made.packed())

    return run


# Of two groups of consumers: several tiles a thread block, more blocks of keys than buffers, ends
# within blocks of K, V and Q, tiles of one group, one behind the other while keys of many blocks
# are left, first tiles that begin before the sequence, without keys and without rows, windows that
# one group alone sees.
HOPPER: tuple[Call, ...] = (
    (1, _packed(0, [70, 40, 30, 65], [0, 0, 0, 0], heads=1, kv_heads=1)),
    (1, _packed(0, [70, 40], [0, 0], heads=1, kv_heads=1)),
    (4, _packed(0, [190, 70], [190, 70], CAUSAL, heads=1, kv_heads=1)),
    (1, _packed(0, [40, 33, 200], [900, 800, 1000], CAUSAL, heads=1, kv_heads=1)),
    (1, _outgrown(CAUSAL)),
    (2, _packed(0, [300, 5, 0, 130, 129], [900, 260, 7, 130, 20], heads=2)),
    (2, _packed(0, [64, 17, 64, 200, 1, 33], [64, 17, 90, 200, 30, 20], CAUSAL, heads=2)),
    (1, _packed(0, [190, 0, 300], [700, 65, 310], ServeRule(window=(150, 3)), heads=2,
                leftpad=[160, 0, 20], sinks=torch.linspace(-1, 1, 2))),
    (3, _packed(0, [70, 0, 190], [200, 65, 150], EVERYTHING, heads=4, leftpad=[160, 0, 20])),
    # Soft caps have an optimistic loop of their own: all scores within it, one far beyond, and
    # masks at both ends.
    (1, _packed(0, [40, 33, 200], [900, 800, 1000], WITHIN, heads=1, kv_heads=1)),
    (2, _packed(0, [190, 300], [900, 1010], replace(WITHIN, window=(700, 3), causal=False),
                leftpad=[160, 0])),
    (1, _outgrown(replace(CAUSAL, softcap=30.0))),
    (1, _outgrown(replace(CAUSAL, softcap=30.0, window=(850, -1)))),
)  # fmt: skip
# Of four groups' rows: a first tile that begins before the sequence.
FOUR_GROUPS: Call = (2, _packed(0, [300], [300], CAUSAL, heads=1, kv_heads=1))
# Of tiles with the rows of all heads that share a KV head: whole queries and a part of one.
PACKED: tuple[Call, ...] = (
    (2, _packed(0, [40, 0, 3, 50], [90, 65, 300, 50], CAUSAL, heads=6, kv_heads=2)),
    (1, _packed(0, [9, 30], [200, 310], EVERYTHING, heads=8, kv_heads=1, leftpad=[160, 0])),
)  # fmt: skip
# Of a latent cache: one piece a thread block, of a whole tile or, merged by groups, of a part; and
# several; rows that are not filled, pages that are blocks, divide them, and neither; more blocks of
# keys than stages, sequences without keys, first keys that are hidden.
LATENT: tuple[Call, ...] = (
    (9, _cached(700, [1], [700], heads=64)),
    (2, _packed(0, [1, 3, 1], [200, 130, 19], EVERYTHING, heads=72, leftpad=[160, 0, 0],
                sinks=torch.linspace(-1, 1, 72))),
    (3, _paged(64, [3, 3, 3], [330, 4, 0], CAUSAL, heads=24)),
    (1, _paged(24, [1, 1], [150, 90], heads=16)),
    (4, _packed(3, [1, 1], [400, 65], heads=16)),
)  # fmt: skip
GRADIENTS: tuple[Callable[..., Packed], ...] = (
    functools.partial(Packed, [17, 0, 170, 1], [140, 5, 170, 130]),
    functools.partial(Packed, [150, 3], [240, 3], CAPPED, with_sinks=True, with_d_lse=True),
    functools.partial(Packed, [40, 9], [90, 0], FULL, heads=1),
)
# Of Hopper's: several queries' blocks, ends within blocks, windows, heads that share keys.
HOPPER_GRADIENTS: tuple[Callable[..., Packed], ...] = (
    functools.partial(Packed, [17, 0, 170, 1], [140, 5, 170, 130]),
    functools.partial(
        Packed, [150, 3], [240, 3], ServeRule(causal=True, window=(20, -1), scale=0.2), kv_heads=2,
        with_d_lse=True,
    ),
    functools.partial(Packed, [40, 9], [390, 0], FULL, heads=1),
    functools.partial(Packed, [325], [200], ServeRule(window=(90, 40)), heads=3),
)  # fmt: skip
# Without the gradients of keys nothing lies between the last matmul and those of values.
ALONE = functools.partial(Packed, [70], [90])


@functools.cache
def launches(config: KernelConfig, variant: Variant) -> list[Launch]:
    """Those of one kernel, each of a call whose result is right."""
    found = []
    dtype = config.dtype.to_torch_dtype()
    if isinstance(config, ServeKernelConfig):
        batch: Callable[..., Batch] = functools.partial(Batch, d=config.d_head, dtype=dtype)
        if isinstance(config, AmpereMlaKernelConfig):
            batch = functools.partial(LatentBatch, dtype=dtype)
        for number, (multiprocessors, call) in enumerate(_calls(config)):
            if isinstance(config, HopperServeKernelConfig) and config.paged:
                page = PAGES[number % len(PAGES)]
                batch = functools.partial(OverPages, d=config.d_head, dtype=dtype, page=page)
            with served_by(config, multiprocessors):
                found += recorded(functools.partial(call, batch))
    elif isinstance(config, FusedServeBackwardKernelConfig):
        with hopper_gradients():
            for problem in HOPPER_GRADIENTS:
                found += recorded(problem(d=config.d_head, dtype=dtype).check)
    else:
        named: dict[str, Any] = {"d": config.d_head, "dtype": dtype}
        for problem in GRADIENTS:
            found += recorded(problem(**named).check)
        for name in "qkv":
            found += recorded(functools.partial(ALONE(**named).check_alone, name))
    return [one for one in found if (one.config, one.variant) == (config, variant)]


def _calls(config: ServeKernelConfig) -> tuple[Call, ...]:
    if isinstance(config, HopperServeKernelConfig):
        if config.pack_gqa:
            return (*HOPPER, *PACKED)
        return (*HOPPER, FOUR_GROUPS) if config.n_mma_groups == 4 else HOPPER
    if isinstance(config, AmpereMlaKernelConfig):  # and Hopper's
        return LATENT
    return DECODES if config.shares_keys() else PROMPTS
