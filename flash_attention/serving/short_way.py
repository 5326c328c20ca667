"""The short way of serving calls: one like a call that was remembered goes to the extension at
once."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from flash_helpers.kernels.serve_config import (
    CUT_HEADS,
    FEW_HEADS,
    FEW_KEYS,
    MANY_HEADS,
    MOST_UNITS,
    PAIR_HEADS,
    TELLING_ROWS,
)

from ..interface import exchange_api
from ..library import load_library
from ..memory import without_memory
from ..surroundings import new_tensors, nothing_done, surroundings
from .tensors import read_sinks

if TYPE_CHECKING:
    from .result import Result

# A call's arguments as its user gave them, in the order of csrc/bindings/serving_query.h.
Given = tuple[object, ...]
_SCRATCH = ("o_partial", "lse_partial", "arrivals")


def _find_short_way(q: Any, *others: Any) -> Any:
    """Looks for it at the first call on a GPU: what has none does without the extension."""
    global _short_way
    if getattr(q, "is_cuda", False) is not True:
        return None
    calls = _calls()
    _short_way = nothing_done if calls is None else calls.attend
    return _short_way(q, *others)


# (*given) -> what the call returns, with its kernels queued; None where nothing was done, as
# something has to see the call or none like it is remembered.
_short_way: Callable[..., Any] = _find_short_way


def again(given: Given) -> "Result | None":
    """What the short way returns, of a call that nobody traces."""
    if is_dynamo_compiling():
        return None
    served: Result | None = _short_way(*given)
    return served


def remember(
    given: Given,
    kernel_id: int,
    record: bytes,
    memory: dict[str, torch.Tensor],
    *,
    keeps_memory: bool,
    by_sizes: bool,
) -> None:
    """Lets calls like this one, which was launched with this record, go the short way. Their
    scratch memory is this call's (`keeps_memory`), or new. `by_sizes`: those with other numbers of
    sequences, queries, keys or pages are not like it."""
    calls = _calls()
    if calls is None:
        return
    scratch = (
        memory
        if keeps_memory
        else {name: without_memory(tuple(x.shape), x.device, x.dtype) for name, x in memory.items()}
    )
    found = tuple(map(scratch.get, _SCRATCH))
    calls.remember(given, kernel_id, record, found, keeps_memory, by_sizes)


@cache
def _calls() -> Any:
    api = exchange_api()
    if not api:
        return None
    return load_library().ServingCalls(
        torch.Tensor,
        api,
        surroundings(),
        new_tensors(),
        float32=torch.float32,
        parameter=torch.nn.Parameter,
        read_sinks=read_sinks,
        most_rows=TELLING_ROWS,
        many_heads=MANY_HEADS,
        pair_heads=PAIR_HEADS,
        few_heads=FEW_HEADS,
        cut_heads=CUT_HEADS,
        few_keys=FEW_KEYS,
        most_units=MOST_UNITS,
    )
