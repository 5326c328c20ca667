"""Launches of every backward kernel of this build, for a tool that watches them (sanitize.sh): no
reference is computed, and nothing is compared.

    python -m tests.gpu.backward_launches [WORD...]

With words, of the kernels alone whose names have one of them. Prints each launch."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from flash_helpers.kernels.sm80_bwd_fused.config import AmpereFusedBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig
from tests.gpu.test_backward import built, run

# (batch, query length, key length, query heads, KV heads): ends within blocks. More tiles than
# multiprocessors, so that thread blocks which stay take several; and heads that are shared out.
SHAPES = [(2, 300, 333, 32, 32), (1, 300, 333, 16, 2)]
SECTIONS = (2, 200, 1100, 24, 24)  # enough for pairs to prepare each other's
# Of kernels whose thread blocks have a tile each, and know of no other: racecheck takes 10 s for a
# launch of the above.
FEW_HEADS = [(1, 300, 333, 2, 2), (1, 300, 333, 4, 2)]
AMPERE = (AmpereBackwardKernelConfig, AmpereFusedBackwardKernelConfig)


def launch(config: KernelConfig, shape: tuple[int, int, int, int, int], causal: bool) -> None:
    batch, q_len, k_len, heads, kv_heads = shape
    sizes = {"q": (q_len, heads), "k": (k_len, kv_heads), "v": (k_len, kv_heads)}
    sizes |= {"o": sizes["q"], "d_o": sizes["q"]}
    given = {
        name: torch.randn(batch, *size, config.d_head, device="cuda").to(
            config.dtype.to_torch_dtype()
        )
        for name, size in sizes.items()
    }
    given["lse"] = torch.full((batch, heads, q_len), 9.0, device="cuda")
    run(config, given, causal)
    torch.cuda.synchronize()
    print(config, shape, "causal" if causal else "full", flush=True)


def main(words: Sequence[str]) -> int:
    found = [c for c in built() if not words or any(word in str(c) for word in words)]
    for config in found:
        assert isinstance(config, BackwardKernelConfig)
        few = isinstance(config, AMPERE)
        for causal in (False, True):
            for shape in FEW_HEADS if few else SHAPES:
                launch(config, shape, causal)
        if isinstance(config, ClusterBackwardKernelConfig):
            launch(config, SECTIONS, causal=False)
    print(f"{len(found)} kernels")
    return 0 if found else 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
