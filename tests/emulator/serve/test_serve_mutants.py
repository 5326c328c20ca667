"""Of the kernels that serve, every synchronisation of a few is needed; `make mutants` plants those
of the others."""

from __future__ import annotations

import pytest

from flash_helpers.kernels.contract import KernelConfig, Variant

from ..totals import SERVE
from .campaign import KERNELS, campaign, mutants_of

FEW = [
    pytest.param(*KERNELS["sm80_serve"][0], id="prompts"),
    pytest.param(*KERNELS["sm80_serve"][1], id="decode", marks=pytest.mark.slow),  # 40 s
    pytest.param(*KERNELS["sm80_bwd_serve"][0], id="gradients"),
]


@pytest.mark.parametrize(("config", "variant"), FEW)
def test_every_synchronisation_is_needed(config: KernelConfig, variant: Variant, seed: int) -> None:
    mutants = mutants_of(config, variant)
    assert len(mutants) >= 8  # an empty list of mutants would prove nothing
    outcome = campaign(config, variant, mutants, seed)
    print(outcome, outcome.found)
    assert outcome.survivors == [] and outcome.redundant <= 2
    assert outcome.found["race detector"] >= len(mutants) / 2


@pytest.mark.parametrize("family", SERVE)
def test_as_many_mutants_as_recorded(family: str) -> None:
    """Without running them."""
    assert SERVE[family].planted == sum(len(mutants_of(*kernel)) for kernel in KERNELS[family])
