"""How much work the Hopper family's kernels need for a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flash_helpers.kernels.sm90_fwd.config import GROUP_ROWS, MaxPolicy

from ..attention import from_bits
from ..work import Work
from .group_rows import GroupRows

if TYPE_CHECKING:
    from .attention import HopperProblem

_WARPS = 4  # of a group, each of which counts
_PAUSE = 16  # ordinary steps behind an event


@dataclass
class RareWork:
    """Optimistic steps of all groups, and of them those where m had to rise: by a correction, or
    with the scores multiplied again."""

    steps: int = 0
    corrected: int = 0
    repeated: int = 0

    @property
    def events(self) -> int:
        return self.corrected + self.repeated

    @property
    def votes(self) -> int:
        """One in every step, and another behind an event."""
        return self.steps + self.events


def matrix_instructions(problem: HopperProblem) -> int:
    """Q K^T and P V for every block of keys that some row of a group sees, in steps of 16; and once
    more Q K^T for every block that an optimistic step computes again."""
    config = problem.config
    scores, output = config.d_head // 16, config.block_n // 16
    visible = (int(_visible(problem, last)[0]) for last in _last_rows(problem))
    blocks = problem.heads * sum(-(-keys // config.block_n) for keys in visible)
    return _WARPS * (blocks * (scores + output) + rare_work(problem).repeated * scores)


def needed_work(problem: HopperProblem) -> Work:
    """A tile needs Q for each group, and K and V of all blocks that its last row sees; each warp
    stores its 16 rows, where they do not lie before the first, and each row its log-sum-exp."""
    config = problem.config
    last_rows = [first + config.block_m() - 1 for first in _tiles(problem)]
    loads = sum(
        config.n_mma_groups + 2 * -(-int(_visible(problem, last)[0]) // config.block_n)
        for last in last_rows
    )
    groups = sum(
        first + group * GROUP_ROWS >= 0
        for first in _tiles(problem)
        for group in range(config.n_mma_groups)
    )
    return Work(
        matrix_instructions(problem),
        bulk_loads=problem.heads * loads,
        bulk_stores=problem.heads * groups * _WARPS,
        global_stores=problem.heads * problem.seqlen_q,
    )


def _tiles(problem: HopperProblem) -> range:
    """The first row of each tile of a head. Where the last tile would have one group at work, the
    first begins that much earlier, if causal (sm90/schedule.cuh)."""
    config, rows = problem.config, problem.config.block_m()
    groups = -(-problem.seqlen_q // GROUP_ROWS)
    alone = problem.causal and groups % config.n_mma_groups == 1 < config.n_mma_groups
    origin = (1 - config.n_mma_groups) * GROUP_ROWS if alone else 0
    return range(origin, origin + -(-problem.seqlen_q // rows) * rows, rows)


def rare_work(problem: HopperProblem) -> RareWork:
    """What the optimistic softmax does for the problem; of another, nothing."""
    work = RareWork()
    if problem.config.max_policy is MaxPolicy.OPTIMISTIC:
        for head in range(problem.heads):
            for last in _last_rows(problem):
                _walk(problem, head, last, work)
    return work


def _last_rows(problem: HopperProblem) -> Iterator[int]:
    """Of every group; that of a head's last group may lie behind the end."""
    return iter(range(GROUP_ROWS - 1, problem.seqlen_q + GROUP_ROWS - 1, GROUP_ROWS))


def _visible(problem: HopperProblem, *rows: int) -> Any:
    """Keys that each row sees, counted from the first."""
    if not problem.causal:
        return np.full(len(rows), problem.seqlen_k)
    keys = np.array(rows) + 1 + problem.seqlen_k - problem.seqlen_q
    return np.clip(keys, 0, problem.seqlen_k)


def _walk(problem: HopperProblem, head: int, last: int, work: RareWork) -> None:
    """The blocks of one group, last first. In fp64: only a score within some 1e-6 of a limit could
    make the kernel decide differently."""
    n = problem.config.block_n
    visible = _visible(problem, *range(last + 1 - GROUP_ROWS, last + 1))
    exponents = _exponents(problem, head, last)
    first = -(-int(visible[-1]) // n) - 1
    optimistic = max(0, int(visible[0]) - n // 2) // n
    rows, fresh = GroupRows(n), True
    for block in reversed(range(first + 1)):
        keys = np.arange(block * n, (block + 1) * n)
        scores = np.where(keys < visible[:, None], exponents[:, keys], -np.inf)
        if block >= optimistic:
            rows.ordinary(scores)
            fresh = True
            continue
        if fresh:
            rows.set_limits(int(visible[GROUP_ROWS // 2]) - (block + 1) * n)
        corrected, lost = rows.optimistic(scores)
        work.steps += 1
        work.corrected += corrected
        work.repeated += lost
        event = corrected or lost
        if event and fresh:
            optimistic = block & -_PAUSE
        fresh = event


def _exponents(problem: HopperProblem, head: int, last: int) -> Any:
    """[row of a group][key] as exponents of 2; rows and keys behind the end are 0."""
    config = problem.config
    n_keys = -(-problem.seqlen_k // config.block_n) * config.block_n
    q, k = np.zeros((GROUP_ROWS, config.d_head)), np.zeros((n_keys, config.d_head))
    rows = from_bits(problem.q[0, last + 1 - GROUP_ROWS : last + 1, head], config.dtype)
    q[: len(rows)] = rows
    kv_head = head // (problem.heads // problem.kv_heads)
    k[: problem.seqlen_k] = from_bits(problem.k[0, :, kv_head], config.dtype)
    return q @ k.T * config.d_head**-0.5 / np.log(2)
