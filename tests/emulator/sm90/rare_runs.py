"""How often kernels of the Hopper family take their rare paths: what no result shows."""

from __future__ import annotations

import numpy as np

from flash_helpers.emulator import EmulatedKernel
from flash_helpers.kernel_configs import HopperForwardKernelConfig

from ..attention import to_bits
from ..work import TOO_MUCH
from .attention import TOLERANCE, HopperProblem
from .work import rare_work


def rising(config: HopperForwardKernelConfig, growing: bool, seed: int) -> HopperProblem:
    """Six blocks of keys, random ones or ones that grow."""
    rows, keys = config.blocks()
    problem = HopperProblem(config, rows, 6 * keys, heads=4, kv_heads=4, seed=seed)
    if not growing:
        values = np.random.default_rng(seed).standard_normal(problem.k.shape)
        problem.k[:] = to_bits(values, config.dtype)
    return problem


def votes(problem: HopperProblem, kernel: EmulatedKernel) -> tuple[bool, int]:
    """Whether a run was right, and its barriers but the one at the beginning: the groups' votes."""
    config = problem.config
    assert not config.ping_pong and not config.o_in_q
    o, lse, report = problem.run(kernel)
    return problem.error(o, lse) <= TOLERANCE, report.collectives["bar.sync"] - 1


def wrong_votes(config: HopperForwardKernelConfig, kernel: EmulatedKernel, seed: int) -> str:
    """What is wrong with how often m rises, '' for nothing."""
    for growing in (False, True):
        problem = rising(config, growing, seed)
        if votes(problem, kernel) != (True, rare_work(problem).votes):
            return TOO_MUCH
    return ""


def _exchanges(kernel: EmulatedKernel, problem: HopperProblem) -> tuple[int, int]:
    """Shuffles and votes: there are more where m rises."""
    o, lse, report = problem.run(kernel)
    assert problem.error(o, lse) <= TOLERANCE
    return report.collectives["shfl"], report.collectives["vote"]


def wrong_lag(config: HopperForwardKernelConfig, kernel: EmulatedKernel, seed: int) -> str:
    """The lazy softmax does for scores that grow, by a few powers of 2 in their exponentials, what
    it does for scores that are all alike."""
    rows, keys = config.blocks()
    alike, *growing = (
        _exchanges(kernel, HopperProblem(config, rows, 6 * keys, seed=seed, scale=scale))
        for scale in (0.0, 0.05, 0.2)
    )
    return "" if all(found == alike for found in growing) else TOO_MUCH
