"""Calls like an earlier one skip its checks and Triton's: all but the addresses and the stream is
known, so the kernels are started at once (triton_kit/again.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch._C import _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.compiler import disable, is_compiling

from ..triton_kit.again import Again
from ..triton_kit.launched import noted, noting
from ..triton_kit.machine import Gpu, Machine
from ..triton_kit.repeatable import repeatable
from .launching import goes_through_torch

# Of one function. A number that is another one at every call would fill the memory.
MOST_CALLS = 4096
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_WORDS = frozenset((bool, int, str, type(None)))
_SPELLED = frozenset((float, list, tuple))  # 0.0 equals -0.0, and (1,) equals (True,)
_GPU = Gpu()

A = ParamSpec("A")
R = TypeVar("R")
Like = Callable[..., bool]
Pattern = tuple[tuple[int, int, int], ...] | None


@dataclass(frozen=True)
class _Call:
    """`like` says of tensors whether they are as those of the call were; `again` is None for a call
    that cannot be repeated."""

    pattern: Pattern
    like: Like
    again: Again | None


def remembered(function: Callable[A, R], machine: Machine = _GPU) -> Callable[A, R]:
    """The function, which launches kernels; a call like an earlier one repeats what that launched.

    Like means: all that checks and launches depend on. Of tensors their type, shape, strides,
    device, whether gradients, recording or transformations want to see them, whether they are
    aligned and which begin at one address; of anything else its type and value. Other calls, those
    whose tensors lack memory, and those that are more than their launches, go through the function,
    which says what is wrong with them.
    """
    known: dict[tuple[Any, ...], list[_Call]] = {}
    # torch.compile breaks its graph there.
    unrecorded = disable(function)  # type: ignore[no-untyped-call]

    @wraps(function)
    def call(*args: A.args, **named: A.kwargs) -> R:
        if is_compiling():
            # What goes to memory that is given, or has its own configuration, is no operator.
            plain = named.get("out") is None and named.get("config") is None
            return function(*args, **named) if plain else unrecorded(*args, **named)
        if _len_torch_dispatch_stack() or forward_ad._current_level >= 0:
            return function(*args, **named)
        given: list[torch.Tensor] = []
        try:
            key = _key((*args, *named.values(), ..., *named) if named else args, given)
            calls = known.get(key)
            at = [tensor.data_ptr() for tensor in given]
        except (RuntimeError, TypeError):  # a tensor without shape or memory; a value without hash
            return function(*args, **named)
        pattern = _pattern(given, at)
        distinct = given if pattern is None else _distinct(given)
        for one in calls or ():
            if one.pattern == pattern and one.like(*distinct):
                result = one.again(given, at) if one.again and noting() is None else None
                return function(*args, **named) if result is None else cast("R", result)
        if not _worth_it(given, at, machine):
            return function(*args, **named)
        with noted() as launches:
            first = function(*args, **named)
        if (like := _like(distinct)) is not None:
            again = repeatable(machine, given, launches, first)
            if len(known) >= MOST_CALLS:
                known.clear()
            known.setdefault(key, []).append(_Call(pattern, like, again))
        return first

    return call


class _NotRememberedError(TypeError):
    """The call has no tensor, or one of a class that may mean something else."""


def _key(values: tuple[Any, ...], given: list[torch.Tensor]) -> tuple[Any, ...]:
    """What a call is found by, in which a tensor is only its type, and the first one its number of
    elements; the tensors are appended to `given`."""
    key: list[Any] = [torch.is_grad_enabled()]
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            key.append(kind)
            given.append(value)
        elif kind in _WORDS:
            key += (kind, value)
        elif kind in _SPELLED:
            key += (kind, repr(value))
        elif isinstance(value, torch.Tensor):
            raise _NotRememberedError
        else:
            key += (kind, value)
    if not given:
        raise _NotRememberedError
    key.append(given[0].numel())
    return tuple(key)


def _pattern(given: list[torch.Tensor], at: list[int]) -> Pattern:
    """How far addresses are beyond a multiple of 16, and which tensors and addresses are the same:
    None where there is nothing to say."""
    every = 0
    for address in at:
        every |= address
    if not every & 15 and len(set(at)) == len(at):
        return None
    these = list(map(id, given))
    return tuple(
        (address & 15, at.index(address), these.index(this))
        for address, this in zip(at, these, strict=True)
    )


def _distinct(given: list[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in given}.values())


def _worth_it(given: Sequence[torch.Tensor], at: Sequence[int], machine: Machine) -> bool:
    """Whether such a call may be remembered at all."""
    return (
        given[0].device.type == machine.device_type
        and 0 not in at
        and noting() is None
        and not goes_through_torch(*given)
        and not any(tensor.is_neg() for tensor in given)
    )


def _like(given: Sequence[torch.Tensor]) -> Like | None:
    """Whether other tensors are as these: torch.compile's own guard, one call for all. It looks at
    the class, type, device, shape and strides, whether a gradient is required, and at what PyTorch
    dispatches by, of the tensors (a negated view) and of the thread (transforms, tracing,
    autocast). None where this release of PyTorch has no such guard."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        guard = TensorGuards(
            *given,
            dynamic_dims_sizes=cast("Any", [list(tensor.shape) for tensor in given]),
            dynamic_dims_strides=cast("Any", [list(tensor.stride()) for tensor in given]),
        )
        return guard.check if guard.check(*given) else None
    except (ImportError, TypeError, SystemError):
        return None
