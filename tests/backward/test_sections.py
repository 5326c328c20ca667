"""Gradients by pairs of thread blocks, of which some warps prepare and round the queries of other
heads: they are those that the kernels around the large one alone would leave it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig, SumsOrder
from tests.emulator.sm90.backward import BackwardProblem, clean_kernel

CONFIG = ClusterBackwardKernelConfig(DType.FP16, 192, 64, 64, 2, 2, 8, SumsOrder.ANY_ORDER)
# A wave's pairs; queries, keys, query heads, KV heads, causal.
PROBLEMS = [
    (8, (150, 1021, 6, 3, False)),  # a section is two heads that share keys
    (64, (65, 4096, 7, 7, True)),  # two heads; the last section has one
]


def gradients(problem: BackwardProblem) -> dict[str, Any]:
    config, found = problem.config, problem.arrays
    for variant in config.variants():
        found = found | problem.launch(clean_kernel(config, variant), variant, found)[0]
    return found


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_whoever_does_it(number: int) -> None:
    wave, (queries, keys, heads, kv_heads, causal) = PROBLEMS[number]
    config = replace(CONFIG, wave_pairs=wave)
    made = BackwardProblem(config, queries, keys, heads, kv_heads, causal)
    sections = config.sections(made.sizes)
    assert sections.prepared_before() < sections.n_heads
    assert sections.rounded_behind() < sections.n_heads
    found, alone = (
        gradients(replace(made, config=c)) for c in (config, replace(config, wave_pairs=0))
    )
    for name in ("d_k", "d_v", "row_stats"):
        assert found[name].tobytes() == alone[name].tobytes(), name
    rounded, expected = (x["d_q"].view(np.float16).astype(np.float64) for x in (found, alone))
    # Sums whose terms come in another order.
    assert np.abs(rounded - expected).max() <= 2.0**-10 * np.abs(expected).max()
