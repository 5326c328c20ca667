"""How much work the kernels of a backward pass need for a problem, of every family. Most of it is
that of thread blocks: their own rows, and the blocks that pass by of which these see something."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flash_helpers.kernels.contract import Variant
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from flash_helpers.kernels.sm80_bwd_fused.config import AmpereFusedBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd.config import GROUP_ROWS
from flash_helpers.kernels.sm90_bwd_cluster.config import BLOCKS, ClusterBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig

from .sm90.backward import BackwardProblem
from .work import Work

_ROW_LANES = 4  # of a warp have the same row of scores
_WARPS = 4  # of a group


def needed_work(problem: BackwardProblem, variant: Variant) -> Work:
    if variant is Variant.DOTS:
        return _dots(problem)
    if variant is Variant.ROUND:
        return _round(problem)
    if isinstance(problem.config, ClusterBackwardKernelConfig):
        return _by_pairs(problem, problem.config)
    steps = _steps(problem, variant)
    if isinstance(problem.config, (AmpereBackwardKernelConfig, AmpereFusedBackwardKernelConfig)):
        return _ampere(problem, problem.config, variant, steps)
    return _hopper(problem, variant, steps)


def _pieces(problem: BackwardProblem) -> int:
    """Of 16 bytes, in a row of 16-bit elements."""
    return problem.config.d_head * 2 // 16


def _dots(problem: BackwardProblem) -> Work:
    """Each lane of a row reads its log-sum-exp and a share of dO and the output; also rows that do
    not exist get RowStats, and sums of dQ that are 0; of pairs sections, or in order blocks of
    queries, two counters. Fused in order they get a counter instead, and queries in whole blocks
    that see no key a dQ that is 0."""
    config = problem.config
    threads = config.threads_of(Variant.DOTS)
    heads = problem.heads
    counters = 0
    if isinstance(config, ClusterBackwardKernelConfig):
        sections = config.sections(problem.sizes)
        heads, counters = sections.prepared_before(), 2 * sections.count
    rows = heads * problem.seqlen_q
    filled = heads * config.stats_rows(problem.sizes)
    has_sums = "d_q_sums" in config.outputs(Variant.DOTS)
    cleared = 2 * _pieces(problem) * filled if has_sums else 0
    columns = config.shape(Variant.KEYS)[1]
    if isinstance(config, ClusterBackwardKernelConfig):
        counters = 2 * (filled // columns) if config.is_deterministic() else counters
        counters += 1  # of tiles
    elif has_sums and config.is_deterministic():
        seen = _sees(problem).any(axis=1)
        blocks = [seen[i : i + columns] for i in range(0, len(seen), columns)]
        unseen = sum(len(block) for block in blocks if not block.any())
        cleared = filled + _pieces(problem) * problem.heads * unseen
    elif has_sums and config.stays():
        counters = 1  # of tiles
    if _splits(problem, Variant.KEYS) > 1:  # their counters
        n_counters = problem.kv_heads * -(-problem.seqlen_k // config.shape(Variant.KEYS)[0])
        cleared += -(-n_counters // 4) * 4
    return Work(
        0,
        global_loads=rows * (threads // config.dots_rows() + 2 * _pieces(problem)),
        global_stores=filled + cleared + counters,
    )


def _round(problem: BackwardProblem) -> Work:
    """Sums of whole blocks are read, four at a time, or one by one where a thread's lie apart; rows
    that exist are written."""
    config = problem.config
    queries = config.shape(Variant.KEYS)[1]
    heads = problem.heads
    if isinstance(config, ClusterBackwardKernelConfig):
        heads = config.sections(problem.sizes).rounded_behind()
    summed = heads * -(-problem.seqlen_q // queries) * queries
    written = heads * problem.seqlen_q
    apart = isinstance(config, AmpereFusedBackwardKernelConfig)
    loads = config.d_head if apart else config.d_head // 4
    return Work(0, global_loads=summed * loads, global_stores=written * _pieces(problem))


def _steps(problem: BackwardProblem, variant: Variant) -> list[int]:
    """Of each thread block: blocks that pass by, of all heads that share its own."""
    rows, columns, _ = problem.config.shape(variant)
    sees = _sees(problem)
    own_heads, passes = problem.heads, 1
    if variant is Variant.KEYS:
        sees, own_heads = sees.T, problem.kv_heads * _splits(problem, variant)
        passes = problem.heads // own_heads
    return [passes * int(n) for n in _blocks(sees, rows, columns).sum(axis=1)] * own_heads


def _splits(problem: BackwardProblem, variant: Variant) -> int:
    """Among how many thread blocks a block's heads are shared out."""
    config = problem.config
    if variant is not Variant.KEYS or not isinstance(config, FusedBackwardKernelConfig):
        return 1
    return config.head_splits(problem.sizes)


def _blocks(sees: Any, rows: int, columns: int) -> Any:
    """Of so many rows and columns, which of them have something that is seen."""
    whole = np.pad(sees, [(0, -len(sees) % rows), (0, -len(sees[0]) % columns)])
    return whole.reshape(len(whole) // rows, rows, -1, columns).any(axis=(1, 3))


def _sees(problem: BackwardProblem) -> Any:
    """[query][key]"""
    shape = problem.seqlen_q, problem.seqlen_k
    offset = problem.seqlen_k - problem.seqlen_q
    return np.tri(*shape, offset, dtype=bool) if problem.causal else np.ones(shape, bool)


def _ampere(
    problem: BackwardProblem,
    config: AmpereBackwardKernelConfig | AmpereFusedBackwardKernelConfig,
    variant: Variant,
    steps: list[int],
) -> Work:
    """Every matmul of a step is as large as the scores, in mma of 16 x 8 x 16; RowStats of queries
    that pass by are copied, two by two, and of own queries read by all lanes of a row. Where dV and
    dK are summed in turn, everything is copied for each. Adding to a sum of dQ is no store."""
    rows, columns, _ = config.shape(variant)
    keys = variant is Variant.KEYS
    own_rows = problem.seqlen_k * problem.kv_heads if keys else problem.seqlen_q * problem.heads
    matmul = math.prod((rows // 16, columns // 8, config.d_head // 16))
    in_turn = isinstance(config, AmpereBackwardKernelConfig) and config.sums_in_turn()
    passes = 2 if keys and in_turn else 1
    passing = 2 * columns * _pieces(problem) + (columns // 2 if keys else 0)
    return Work(
        sum(steps) * config.n_matmuls(variant) * matmul,
        async_copies=passes * sum(2 * rows * _pieces(problem) + n * passing for n in steps if n),
        global_loads=0 if keys else len(steps) * rows * _ROW_LANES,
        global_stores=own_rows * _pieces(problem) * (2 if keys else 1),
    )


def _hopper(problem: BackwardProblem, variant: Variant, steps: list[int]) -> Work:
    """A step multiplies over d_head for scores and gradients of weights, over its columns for the
    sums, over all keys for dQ where that is summed as well (64 queries and 16 elements of the head
    to each warp, while there are any); 16 at a time. Loads: own rows by groups; of a block
    that passes by two tensors, and the RowStats of queries. Those of own queries are read by all
    lanes of a row. Each warp stores its rows of each gradient, of which the copy engine leaves out
    those that do not exist."""
    config = problem.config
    rows, columns, _ = config.shape(variant)
    keys = variant is Variant.KEYS
    row_groups = rows // GROUP_ROWS
    brought, stored = _rounded(problem, variant)
    splits = _splits(problem, variant)
    depth = 2 * config.d_head + (2 if keys else 1) * columns
    added = 0
    if isinstance(config, FusedBackwardKernelConfig):
        depth += rows
        added = row_groups if config.add_by is not AddBy.REGISTERS else 0
    gradients = 2 if keys else 1
    # Where heads are shared out each thread block leaves its sums, and one of them reads all.
    parts = 0 if splits == 1 else len(steps) * gradients * rows * config.d_head * 4 // 16
    # In order nothing says how often counters are asked: BackwardProblem.work() counts no loads.
    in_order = isinstance(config, FusedBackwardKernelConfig) and config.is_deterministic()
    loads = 0 if in_order else parts
    return Work(
        sum(steps) * row_groups * _WARPS * depth // 16,
        bulk_loads=sum(2 * row_groups + n * (3 if keys else 2) for n in steps if n) + brought,
        bulk_stores=len(steps) // splits * rows // 16 * gradients + sum(steps) * added + stored,
        global_loads=loads if keys else problem.heads * problem.seqlen_q * _ROW_LANES,
        global_stores=parts,
    )


def _by_pairs(problem: BackwardProblem, config: ClusterBackwardKernelConfig) -> Work:
    """The blocks that pass by a pair pass by both of its thread blocks. In a step each multiplies
    over d_head for scores and gradients of weights, over its columns for two sums, and over the
    keys of both for its part of dQ. Loads: own rows, two chunks of the other's K, and what passes
    by. Each warp sends its rows of dS, and adds four pieces of dQ at a time; and stores its rows of
    each gradient. The first block of a pair tells the other one of each tile. What the kernels
    around it do not prepare or round is done here, dQ by stores of 4 bytes."""
    rows, columns, _ = config.shape(Variant.KEYS)
    sees = _sees(problem).T
    passes = problem.heads // problem.kv_heads
    pairs = _blocks(sees, BLOCKS * rows, columns).sum(axis=1).tolist() * problem.kv_heads
    steps = [passes * int(n) for n in pairs for _ in range(BLOCKS)]
    depth = 2 * config.d_head + 2 * columns + BLOCKS * rows
    added = config.d_head // BLOCKS // 8 // 4
    sections = config.sections(problem.sizes)
    prepared = (problem.heads - sections.prepared_before()) * sections.rows_of_head
    rounded = (problem.heads - sections.rounded_behind()) * problem.seqlen_q
    told = len(pairs) + problem.grid(Variant.KEYS) // BLOCKS  # each that there is no other tile
    return Work(
        sum(steps) * _WARPS * depth // 16,
        bulk_loads=sum(4 + 3 * n for n in steps),
        bulk_stores=_WARPS * (2 * len(steps) + (1 + added) * sum(steps)) + told,
        global_stores=prepared * (1 + 2 * _pieces(problem)) + rounded * config.d_head // 2,
    )


def _rounded(problem: BackwardProblem, variant: Variant) -> tuple[int, int]:
    """Copies of sums in order: for each block of queries the thread block that adds last brings the
    others' sums, if there are others, and has each warp's rows of dQ stored in place of each
    group's sums."""
    config = problem.config
    if not isinstance(config, FusedBackwardKernelConfig) or not config.is_deterministic():
        return 0, 0
    rows, columns, _ = config.shape(variant)
    adding = _blocks(_sees(problem), columns, rows).sum(axis=1)
    warps = columns * config.d_head // (config.group_queries() * 16)
    blocks = problem.heads * int((adding > 0).sum())
    return problem.heads * int((adding > 1).sum()), blocks * (warps - rows // GROUP_ROWS)
