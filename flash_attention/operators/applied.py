"""Calls that autograd alone has to see, as they went, and how they are repeated without what was
checked before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from ..triton_kit.again import Again, Memory, Result
from ..triton_kit.repeatable import NUMBERS, extent


@dataclass(frozen=True)
class Applied:
    """`apply`, of an autograd function, with its arguments and what it returned."""

    apply: Callable[..., Any]
    arguments: tuple[Any, ...]
    result: Any


_HERE: ContextVar[list[Applied] | None] = ContextVar("applied", default=None)


def note(apply: Callable[..., Any], arguments: tuple[Any, ...], result: Any) -> None:
    if (calls := _HERE.get()) is not None:
        calls.append(Applied(apply, arguments, result))


@contextmanager
def noted() -> Iterator[list[Applied]]:
    """What this thread applies inside, but for what is noted by somebody further in."""
    calls = list[Applied]()
    token = _HERE.set(calls)
    try:
        yield calls
    finally:
        _HERE.reset(token)


def reapplied(given: Sequence[torch.Tensor], calls: Sequence[Applied], result: Any) -> Again | None:
    """How to repeat a call that got these tensors, applied this and returned that. None where it is
    not one function of the given tensors and of numbers, whose results are returned as they are."""
    if len(calls) != 1:
        return None
    (call,) = calls
    at = {id(tensor): i for i, tensor in reversed(list(enumerate(given)))}
    places: list[tuple[int | None, Any]] = []
    for value in call.arguments:
        if type(value) not in NUMBERS and id(value) not in at:
            return None
        places.append((at.get(id(value)), value if id(value) not in at else None))
    outputs = call.result if isinstance(call.result, tuple) else (call.result,)
    results = result if isinstance(result, tuple) else (result,)
    of = {id(output): i for i, output in enumerate(outputs)}
    if any(id(one) not in of for one in results):
        return None
    picked = [of[id(one)] for one in results]
    memory = Memory(tuple((extent(t), t.itemsize) for t in given), apart=(), made=())
    single = isinstance(call.result, torch.Tensor)
    return _again(call.apply, places, memory, single, picked, isinstance(result, tuple))


def _again(
    apply: Callable[..., Any], places: list[tuple[int | None, Any]], memory: Memory, single: bool,
    picked: list[int], as_tuple: bool,
) -> Again:  # fmt: skip
    """`places`: of each argument its position among the tensors, or its value; `picked`: of each
    result its position among the outputs."""

    def again(given: list[torch.Tensor], at: list[int]) -> Result | None:
        if not memory.is_held(given, at):
            return None
        outputs = apply(*[value if i is None else given[i] for i, value in places])
        if single:
            outputs = (outputs,)
        return tuple([outputs[i] for i in picked]) if as_tuple else outputs[picked[0]]

    return again
