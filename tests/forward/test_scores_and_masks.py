"""Scores of up to 6e4: their products with the scale lose what tells them apart, so that m is
subtracted first. And masks of blocks that are wide enough to be masked in parts."""

import pytest
import torch

from flash_lab.bench.distributions import draw as draw_from

from .test_rare_shapes import HOPPER, THREE_GROUPS, check, draw


@pytest.mark.parametrize("name", [HOPPER, THREE_GROUPS])
@pytest.mark.parametrize("distribution", ["large", "large-alike"])
def test_large_scores(name: str, distribution: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = (1, 200, 1, 64), (1, 330, 1, 64)
    q, k, v = draw_from(distribution, *shapes, torch.float16, generator)
    check(name, q, k, v, causal=False)


def test_masks_that_end_in_either_part(seed: int) -> None:
    for n_keys in range(70, 70 + 96, 5):
        q, k, v = draw(seed, (1, 70, 1, 64), (1, n_keys, 1, 64))
        check(THREE_GROUPS, q, k, v, causal=True)
