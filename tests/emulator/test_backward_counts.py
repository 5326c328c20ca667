"""The kernels of every family's backward pass do exactly what a problem needs: matrix instructions,
copies, loads and stores."""

from __future__ import annotations

import pytest

from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.sm80_bwd.sets import get_ampere_backward_kernel_configs
from flash_helpers.kernels.sm80_bwd_fused.sets import get_ampere_fused_backward_kernel_configs

from .backward_work import needed_work
from .sm90.backward import problems
from .sm90.backward_campaign import CLUSTER, FUSED, KERNELS, OTHERS

AMPERE = get_ampere_backward_kernel_configs()
SOME = (AMPERE[0], *(next(c for c in AMPERE if c.d_head == d_head) for d_head in (192, 256)))
AMPERE_FUSED = get_ampere_fused_backward_kernel_configs()[:2]
TRIED = (config for config, _ in (*KERNELS, *OTHERS))
CONFIGS = sorted({*SOME, *AMPERE_FUSED, FUSED, CLUSTER, *TRIED}, key=str)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_no_more_work_than_needed(config: BackwardKernelConfig, seed: int) -> None:
    for problem in problems(config, seed):
        for variant in config.variants():
            assert problem.expected(variant)[1] == needed_work(problem, variant), variant
