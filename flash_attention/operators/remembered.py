"""Calls like an earlier one skip its checks and Triton's: all but the addresses and the stream is
known, so the kernels are started at once (triton_kit/again.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from operator import itemgetter
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import is_grad_enabled
from torch._C import _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.compiler import disable, is_dynamo_compiling

from ..triton_kit.again import Again
from ..triton_kit.launched import HERE, noted, noting
from ..triton_kit.machine import Gpu, Machine
from ..triton_kit.repeatable import repeatable
from .launching import goes_through_torch

# Of one function. A number that is another one at every call would fill the memory.
MOST_CALLS = 4096
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_COMPARED = (type(None), bool, int, float, str)  # by their values, in C++
_SPELLED = frozenset((float, list, tuple))  # 0.0 equals -0.0, and (1,) equals (True,)
_GPU = Gpu()
_address = torch.Tensor.data_ptr

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
    forms: dict[tuple[Any, ...], _Form] = {}
    in_c = _InC(machine)
    # torch.compile breaks its graph there.
    unrecorded = disable(function)  # type: ignore[no-untyped-call]

    @wraps(function)
    def call(*args: A.args, **named: A.kwargs) -> R:
        if is_dynamo_compiling():
            # What goes to memory that is given, or has its own configuration, is no operator.
            plain = named.get("out") is None and named.get("config") is None
            return function(*args, **named) if plain else unrecorded(*args, **named)
        if (found := in_c.again(args, named)) is not None:
            return found  # type: ignore[no-any-return]
        if _len_torch_dispatch_stack() or forward_ad._current_level >= 0:
            return function(*args, **named)
        try:
            if named:
                values = (*args, *named.values())
                kinds = (*map(type, values), *named)
            else:
                values, kinds = args, tuple(map(type, args))
            form = forms.get(kinds)
            if form is None:
                form = forms[kinds] = _Form(kinds, len(values))
            given = [*form.tensors(values)]
            key = (is_grad_enabled(), given[0].numel(), form.others and form.others(values))
            calls = form.calls.get(key)
            at = list(map(_address, given))
        except (RuntimeError, TypeError):  # a tensor without shape or memory; a value without hash
            return function(*args, **named)
        pattern, distinct, odd = None, given, 0
        for address in at:
            odd |= address
        if odd & 15 or (len(at) > 1 and len(set(at)) < len(at)):
            pattern, distinct = _pattern(given, at), _distinct(given)
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
            form.remember(key, _Call(pattern, like, again))
            if again is not None:
                in_c.remember(args, named, like, again)
        return first

    return call


class _InC:
    """The same for the most usual calls, in C++. `again`: None where nothing was done."""

    def __init__(self, machine: Machine) -> None:
        self.again: Callable[[tuple[Any, ...], dict[str, Any]], Any] = _nothing
        self._machine = machine
        self._calls: Any = None

    def remember(
        self, args: tuple[Any, ...], named: dict[str, Any], like: Like, again: Again
    ) -> None:
        """Asks for the extension when it is first called."""
        if self._calls is None:
            if (make := self._machine.remembered) is None:
                return
            quiet = [_len_torch_dispatch_stack, HERE]
            self._calls = make(quiet, forward_ad, is_grad_enabled, list(_PLAIN), _COMPARED)
            self.again = self._calls.again
        self._calls.remember(args, named, like, again)


def _nothing(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    return None


class _NotRememberedError(TypeError):
    """The call has no tensor, or one of a class that may mean something else."""


class _Form:
    """Calls whose arguments have such types and names: `tensors` and `others` of the arguments'
    values (`others` is None where there are none), by which calls are found."""

    def __init__(self, kinds: tuple[Any, ...], count: int) -> None:
        """The first `count` are types."""
        places = [i for i, kind in enumerate(kinds[:count]) if kind in _PLAIN]
        others = [i for i in range(count) if i not in places]
        if not places or any(issubclass(kinds[i], torch.Tensor) for i in others):
            raise _NotRememberedError
        self.calls: dict[Any, list[_Call]] = {}
        in_front = places == [*range(len(places))]
        self.tensors = itemgetter(slice(len(places))) if in_front else _picker(places)
        self.others = None if not others else _picker(others)
        if not _SPELLED.isdisjoint(kinds):
            self.others = partial(_spelled, [(i, kinds[i] in _SPELLED) for i in others])

    def remember(self, key: Any, call: _Call) -> None:
        if len(self.calls) >= MOST_CALLS:
            self.calls.clear()
        self.calls.setdefault(key, []).append(call)


def _picker(places: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1))


def _spelled(others: list[tuple[int, bool]], values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([_spelling(values[i]) if spelled else values[i] for i, spelled in others])


def _spelling(value: Any) -> Any:
    """The text takes longer than all else. It says what equality does not: the sign of zero, that
    NaN is NaN, and the types of a list's numbers."""
    return value if type(value) is float and value and value == value else repr(value)


def _pattern(given: list[torch.Tensor], at: list[int]) -> Pattern:
    """How far addresses are beyond a multiple of 16, and which tensors and addresses are the same.
    None stands for multiples of 16, all different."""
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
