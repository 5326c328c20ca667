"""Scores for the online softmaxes of both families, and the softmax in fp64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# How much a row's maximum moves from block to block, as an exponent of 2.
GROWTHS = {"steady": 0.0, "slow": 1.5, "fast": 12.0, "falling": -12.0}


@dataclass(frozen=True)
class Scores:
    """Unscaled scores blocks[block, row, key], -inf where a row does not see a key."""

    blocks: Any
    scale: float

    @classmethod
    def draw(
        cls,
        seed: int,
        shape: tuple[int, int, int],
        growth: str,
        hidden: str = "",
        scale: float = 0.125,
    ) -> Scores:
        """`hidden`: "first" hides the first block from every second row, "last" the end of the last
        block from each row."""
        rng = np.random.default_rng(seed)
        step = GROWTHS[growth] * np.arange(shape[0])[:, None, None]
        blocks = ((rng.standard_normal(shape) + step) / scale * np.log(2)).astype(np.float32)
        if hidden == "first":
            blocks[0, ::2] = -np.inf
        if hidden == "last":
            keys = rng.integers(1, shape[2], shape[1])
            blocks[-1][np.arange(shape[2]) >= keys[:, None]] = -np.inf
        return cls(blocks, float(np.float32(scale)))

    @property
    def scaled(self) -> Any:
        return self.blocks.astype(np.float64) * self.scale

    @property
    def log_sum_exp(self) -> Any:
        """The log-sum-exp of every row; -inf where it sees nothing."""
        largest = self.scaled.max(axis=(0, 2))
        finite = np.where(np.isinf(largest), 0, largest)
        sums = np.exp(self.scaled - finite[None, :, None]).sum(axis=(0, 2))
        with np.errstate(divide="ignore"):
            return np.log(sums) + finite

    @property
    def output(self) -> Any:
        """The softmax, summed over the blocks: (row, key in the block)."""
        lse = self.log_sum_exp
        finite = np.where(np.isinf(lse), 0, lse)
        return np.exp(self.scaled - finite[None, :, None]).sum(axis=0)

    def maxima(self) -> Any:
        """The largest scaled score of a row up to each block, as an exponent of 2: (block, row)."""
        of_block = self.scaled.max(axis=2) / np.log(2)
        return np.maximum.accumulate(of_block, axis=0)
