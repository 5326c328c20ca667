"""The named sets of configurations, and the strict selection word (`KERNELS`)."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from ..base.dtypes import DType
from .contract import KernelConfig, config_order
from .names import parse_sm80_name
from .sm80_fwd.config import FlashForwardKernelConfig
from .sm80_fwd.coverage import get_covering_kernel_configs
from .sm90_fwd.sets import get_hopper_kernel_configs, get_hopper_smoke_kernel_configs
from .steps.previous import PreviousKernelConfig, get_previous_kernel_configs

KERNELS_VARIABLE = "KERNELS"
DEFAULT_KERNELS = "all"

# The first seven steps of the progression; each adds one idea to the one before, and the last
# keeps Q in registers, which makes the double buffer of operands unnecessary.
PROGRESSION_STEPS = (
    "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles",
    "(FP16, 128, 64, 64, 4): async+swizzled+load_0_0_0_tiles",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_0_0_tiles",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax",
)


def should_autotune_config(cfg: FlashForwardKernelConfig) -> bool:
    """Whether a point of the autotuning space is worth a measurement."""
    if cfg.eager_load_blocks and not cfg.async_copy:
        return False  # a load through registers cannot be in flight during the matmul
    if cfg.Q_mma_load_K_tiles not in (0, cfg.K_mma_load_K_tiles):
        return False  # Q and K walk the same loop
    if cfg.B_r == 64:
        if cfg.n_warps == 8:
            return False
        if cfg.B_c == 32 and cfg.Q_mma_load_K_tiles == 0:
            return False  # too many registers for a third thread block per multiprocessor
        if cfg.B_c == 64 and cfg.Q_mma_load_K_tiles != 0:
            return False
    # With 128 query rows, Q as a whole does not fit the registers beside O and S.
    return not (cfg.B_r == 128 and cfg.Q_mma_load_K_tiles == 0)


def has_general_kernel(cfg: KernelConfig) -> bool:
    """Whether a build has a second kernel of this configuration, for any lengths and the causal
    mask. The fast ones of the Ampere family do: the others show what a switch is worth, on whole
    blocks, and the bodies of earlier steps know nothing else. (The emulator compiles either kernel
    of any configuration of the live body.)"""
    if isinstance(cfg, PreviousKernelConfig):
        return False
    return isinstance(cfg, FlashForwardKernelConfig) and (
        cfg.async_copy and cfg.eager_load_blocks and cfg.swizzled and cfg.optimized_softmax
    )


def needs_general_kernel(cfg: KernelConfig, seqlen_q: int, seqlen_k: int, causal: bool) -> bool:
    """Whether a problem is more than whole blocks without a mask, and the kernel one of the two of
    its configuration (csrc/runtime/sm80.cpp decides alike)."""
    if not isinstance(cfg, FlashForwardKernelConfig):
        return False
    return causal or seqlen_k == 0 or cfg.length_violation(seqlen_q, seqlen_k) is not None


def has_kernel_for(
    cfg: KernelConfig, seqlen_q: int, seqlen_k: int, causal: bool, *, emulated: bool = False
) -> bool:
    """Whether a build, or the emulator, has a kernel of this configuration for a problem."""
    if not needs_general_kernel(cfg, seqlen_q, seqlen_k, causal):
        return True
    if emulated:
        return not isinstance(cfg, PreviousKernelConfig)
    return has_general_kernel(cfg)


def launched_symbol(cfg: KernelConfig, seqlen_q: int, seqlen_k: int, causal: bool) -> str:
    """The symbol of the kernel that `forward` launches for a problem that the configuration has
    one for."""
    return cfg.symbol(needs_general_kernel(cfg, seqlen_q, seqlen_k, causal))


def takes_everything(cfg: KernelConfig) -> bool:
    """Whether what a build has of this configuration takes any lengths and the causal mask."""
    return has_general_kernel(cfg) or not isinstance(cfg, FlashForwardKernelConfig)


def get_autotuning_kernel_configs(
    dtypes: Iterable[DType] = (DType.BF16, DType.FP16),
) -> list[FlashForwardKernelConfig]:
    """The autotuning set, sorted: 40 configurations per dtype."""
    shapes = itertools.product((64, 128), (32, 64), (4,))
    tiles = itertools.product((0, 2), repeat=3)
    switches = itertools.product((False, True), repeat=2)
    configs = (
        FlashForwardKernelConfig(
            dtype, 128, *shape, True, True, True, q_tiles, k_tiles, v_tiles, buffer, opt_softmax
        )
        for dtype, shape, (q_tiles, k_tiles, v_tiles), (buffer, opt_softmax) in itertools.product(
            set(dtypes), shapes, tiles, switches
        )
    )
    return sorted(cfg for cfg in configs if should_autotune_config(cfg))


def get_kernel_progression_configs(all: bool = False) -> list[FlashForwardKernelConfig]:
    """The seven steps in order; `all` crosses them with the block sizes and warp counts."""
    steps = [parse_sm80_name(step) for step in PROGRESSION_STEPS]
    if not all:
        return steps
    shapes = itertools.product((128, 64), (128, 64, 32), (4, 8))
    return [
        replace(step, B_r=B_r, B_c=B_c, n_warps=n_warps)
        for B_r, B_c, n_warps in shapes
        if B_r >= B_c and not (n_warps == 8 and B_r == 64)
        for step in steps
    ]


def get_d64_kernel_configs() -> list[FlashForwardKernelConfig]:
    """The progression for heads of 64, in both dtypes, with 64 and 128 query rows a block;
    sorted."""
    return sorted(
        replace(step, dtype=dtype, d_head=64, B_r=B_r)
        for step in get_kernel_progression_configs()
        for dtype in DType
        for B_r in (64, 128)
    )


def _all() -> list[KernelConfig]:
    return _union(_WORDS[word]() for word in ("prog", "tune", "d64", "previous", "hopper"))


def _union(parts: Iterable[Iterable[KernelConfig]]) -> list[KernelConfig]:
    return sorted({config for part in parts for config in part}, key=config_order)


_WORDS: dict[str, Callable[[], Sequence[KernelConfig]]] = {
    "prog": get_kernel_progression_configs,
    "progall": lambda: get_kernel_progression_configs(all=True),
    "all": _all,
    "tune": get_autotuning_kernel_configs,
    "d64": get_d64_kernel_configs,
    "pairs": get_covering_kernel_configs,
    "previous": get_previous_kernel_configs,
    "hopper": get_hopper_kernel_configs,
    "hopper-smoke": get_hopper_smoke_kernel_configs,
}


def valid_words() -> list[str]:
    """Everything that `get_kernel_configs` accepts."""
    blocks = sorted({(c.B_r, c.B_c) for c in get_autotuning_kernel_configs()})
    return [*_WORDS, *(f"{B_r},{B_c}" for B_r, B_c in blocks)]


def get_kernel_configs(key: str = "") -> list[KernelConfig]:
    """The configurations that a selection word names. An empty `key` reads the environment's
    KERNELS; where that is not set either, the word is `all`.

    `B_r,B_c` names the part of the autotuning set with those blocks.
    """
    source = "the key"
    if not key:
        key, source = os.environ.get(KERNELS_VARIABLE, DEFAULT_KERNELS), KERNELS_VARIABLE
    if key in _WORDS:
        return list(_WORDS[key]())
    blocks = re.fullmatch("([1-9][0-9]{0,4}),([1-9][0-9]{0,4})", key)
    if blocks is not None:
        wanted = (int(blocks[1]), int(blocks[2]))
        found = [c for c in get_autotuning_kernel_configs() if c.blocks() == wanted]
        if found:
            return [*found]
    problem = "selects no kernel" if blocks else "is not a selection of kernels"
    words = ", ".join(valid_words())
    raise ValueError(f"{source} {key[:200]!r} {problem}: expected exactly one of {words}")


def get_sm80_kernel_configs(key: str) -> list[FlashForwardKernelConfig]:
    """Those of the Ampere family among what a selection word names."""
    return [c for c in get_kernel_configs(key) if isinstance(c, FlashForwardKernelConfig)]


def get_kernels_to_build(*keys: str) -> list[KernelConfig]:
    """The sorted union of what was asked for (without arguments: of what KERNELS selects), so
    that every configuration a tool can name at that setting is in the extension."""
    return _union(get_kernel_configs(key) for key in keys or ("",))


@cache
def known_configs() -> tuple[KernelConfig, ...]:
    """Every configuration of any set, sorted: what names are compared with in messages."""
    return tuple(_union(get_kernel_configs(word) for word in _WORDS))
