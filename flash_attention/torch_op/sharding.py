"""DTensor: sharded over the batch or over the heads, each device computes its own; anything else is
gathered first."""

import sys
from functools import cache
from itertools import chain, combinations
from math import prod
from typing import Any

from .definition import bwd, fwd


def register_if_used() -> None:
    """Tells DTensor the rules, once, if it was imported: importing it takes half a second."""
    if "torch.distributed.tensor" in sys.modules:
        _register()


@cache
def _register() -> None:
    try:
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError:  # torch is older than 2.6: DTensor says that it has no rule
        return
    register_sharding(fwd)(_fwd)
    register_sharding(bwd)(_bwd)


def _fwd(q: Any, k: Any, v: Any, *options: Any) -> list[tuple[list[Any], list[Any]]]:
    return [([o, lse], [o, o, o, *[None] * len(options)]) for o, lse in _placements(k)]


def _bwd(
    d_o: Any, d_lse: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *options: Any
) -> list[tuple[list[Any], list[Any]]]:
    return [
        (
            [x, x, x],
            [x if d_o is not None else None, rows if d_lse is not None else None,
             x, x, x, x, rows, *[None] * len(options)],
        )
        for x, rows in _placements(k)
    ]  # fmt: skip


def _placements(k: Any) -> list[tuple[Any, Any]]:
    """Of tensors (batch, seq, heads, d), and of the log-sum-exp (batch, heads, seq). The heads only
    where every device gets as many KV heads: its query heads then read its own."""
    from torch.distributed.tensor import Replicate, Shard

    found: list[tuple[Any, Any]] = [(Replicate(), Replicate()), (Shard(0), Shard(0))]
    if all(k.shape[2] % n == 0 for n in _parts(k.mesh.shape) if n <= k.shape[2]):
        found.append((Shard(2), Shard(1)))
    return found


def _parts(mesh: tuple[int, ...]) -> set[int]:
    """Into how many parts sharding over some dimensions of the mesh cuts."""
    subsets = (combinations(mesh, n) for n in range(1, len(mesh) + 1))
    return {prod(sizes) for sizes in chain.from_iterable(subsets)}
