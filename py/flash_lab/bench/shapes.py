"""An attention problem as a row of a store spells it: the `shape`, which has the seed as well."""

from __future__ import annotations

from typing import Any

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

Shape = dict[str, Any]
CEILING = "ceiling"  # a provider and kind of shape: no attention, but what bounds it (ceilings.py)


def shape_of(problem: AttentionProblem, seed: int) -> Shape:
    """`seqlen_k` and `d_v` stand in it only where they differ from `seq_len` and `d_head`: stores
    of older versions know one length and one head dimension."""
    shape: Shape = {
        "batch": problem.batch,
        "n_heads": problem.n_heads,
        "n_kv_heads": problem.n_kv_heads,
        "seq_len": problem.seqlen_q,
        "d_head": problem.d_head,
        "dtype": problem.dtype.name,
        "seed": seed,
        "causal": problem.causal,
    }
    if problem.seqlen_k != problem.seqlen_q:
        shape["seqlen_k"] = problem.seqlen_k
    if problem.d_v != problem.d_head:
        shape["d_v"] = problem.d_v
    return shape


def problem_of(shape: Shape) -> AttentionProblem:
    """Raises KeyError for a size that is missing, ValueError for sizes that make no problem."""
    return AttentionProblem(
        DType.from_string(shape["dtype"]),
        shape["batch"],
        shape["seq_len"],
        shape["seqlen_k" if "seqlen_k" in shape else "seq_len"],
        shape["n_heads"],
        shape["n_kv_heads"],
        shape["d_head"],
        shape.get("d_v", 0),
        bool(shape.get("causal")),
    )
