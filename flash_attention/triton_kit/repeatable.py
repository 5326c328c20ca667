"""Whether a call can be repeated by its launches alone, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from ..checks.memory import byte_range
from .again import Again, Describe, Memory, Step, again
from .launched import Launched
from .machine import Machine

# What is handed on as it is; anything else may hold an address.
NUMBERS = (bool, int, float, str, type(None))
_PIECE = 512  # bytes: as PyTorch aligns memory


class _NotRepeatableError(Exception):
    """Launches alone do not make this call."""


def repeatable(
    machine: Machine, given: Sequence[torch.Tensor], launches: Sequence[Launched], result: Any
) -> Again | None:
    """How to repeat a call that got these tensors, made these launches and returned this. None
    where that is not all it did: where a kernel reads what no argument has and no kernel of the
    call wrote (a copy, say), or the result is not what a kernel wrote."""
    results = result if isinstance(result, tuple) else (result,)
    if not launches or not given or not all(isinstance(t, torch.Tensor) for t in results):
        return None
    tensors = _Tensors(given)
    try:
        steps = [_step(machine, tensors, launch) for launch in launches]
        positions = tuple(map(tensors.returned, results))
    except _NotRepeatableError:
        return None
    if len(set(positions)) != len(positions):
        return None  # two results in one place
    seen = {*positions, *(i for step in steps if step.describe for i in step.addresses)}
    if not seen.isdisjoint(tensors.zeroed):
        return None  # what stays zero is nobody's
    memory, places = _memory(tensors, given, seen)
    steps = [replace(step, addresses=tuple(places[i] for i in step.addresses)) for step in steps]
    positions = tuple(places[i] for i in positions)
    single = isinstance(result, torch.Tensor)
    return again(machine, given[0].device.index or 0, steps, memory, positions, single)


def _memory(
    tensors: _Tensors, given: Sequence[torch.Tensor], seen: set[int]
) -> tuple[Memory, list[int]]:
    """What a call needs, and where each of its tensors is in it: first those given, then those made
    that are `seen` as tensors, then pieces of one memory, then those that stay zero, in one place:
    each launch leaves zeros to the next."""
    n, made, zeroed = len(given), tensors.made, tensors.zeroed
    whole = [i for i in range(len(made)) if n + i in seen]
    pieces = [i for i in range(len(made)) if n + i not in seen and n + i not in zeroed]
    order = {i: n + place for place, i in enumerate([*whole, *pieces])}
    order |= {i - n: n + len(whole) + len(pieces) for i in zeroed}
    begins = [0, *accumulate(-(-extent(made[i]) // _PIECE) * _PIECE for i in pieces)]
    memory = Memory(
        needed=tuple((extent(t), t.itemsize) for t in given), apart=tensors.apart(),
        made=tuple((tuple(made[i].size()), made[i].stride(), made[i].dtype) for i in whole),
        scratch=tuple(begins[:-1]), scratch_bytes=begins[-1],
        zero_bytes=max((extent(made[i - n]) for i in zeroed), default=0),
    )  # fmt: skip
    return memory, [*range(n), *(order[i] for i in range(len(made)))]


def _step(machine: Machine, tensors: _Tensors, launch: Launched) -> Step:
    described = [_described(value) for value in launch.arguments]
    count = sum(tensor is not None for tensor in described)
    first, rest = described[:count], launch.arguments[count:]
    if not all(type(value) in NUMBERS for value in rest):
        raise _NotRepeatableError
    tensors.write([x for i in launch.written if (x := described[i]) is not None])
    tensors.keep_zero([x for i in launch.zeroed if (x := described[i]) is not None])
    positions = tuple(tensors.position(x) for x in first if x is not None)
    if all(isinstance(value, torch.Tensor) for value in launch.arguments[:count]):
        return Step(machine.starter(launch), positions, rest, packed=machine.packed(launch))
    describe = tuple(map(_describe, launch.arguments[:count]))
    straight, driven = machine.direct(launch), machine.packed(launch)
    return Step(machine.starter(launch), positions, rest, describe, straight, driven)


def _described(value: Any) -> torch.Tensor | None:
    """The tensor that an argument is, or that a TMA descriptor of Triton's or Gluon's describes."""
    base = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
    return base if isinstance(base, torch.Tensor) else None


def _describe(descriptor: Any) -> Describe:
    """Makes such a descriptor of other tensors, which are known to be as its own is: its class need
    not check that again. It keeps no tensor; of one that is passed as such, it says the address."""
    if isinstance(descriptor, torch.Tensor):
        return torch.Tensor.data_ptr
    kind: Any = type(descriptor)
    fields = {name: value for name, value in vars(descriptor).items() if name != "base"}

    def describe(tensor: torch.Tensor) -> Any:
        made: Any = object.__new__(kind)
        made.__dict__ = {"base": tensor, **fields}
        return made

    return describe


class _Tensors:
    """Those of a call by their addresses: first those given, then those made."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        self._given = given
        self._at = {t.data_ptr(): i for i, t in reversed(list(enumerate(given)))}
        self._written: set[int] = set()
        self.made: list[torch.Tensor] = []
        self.zeroed: set[int] = set()  # positions of those that launches find zero, and leave zero

    def write(self, tensors: Sequence[torch.Tensor]) -> None:
        """A kernel writes to these; what is not given is made for it."""
        for tensor in tensors:
            address = tensor.data_ptr()
            if address not in self._at:
                self._at[address] = len(self._given) + len(self.made)
                self.made.append(tensor)
            self._written.add(address)

    def keep_zero(self, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            position = self.position(tensor)
            if position < len(self._given):
                raise _NotRepeatableError
            self.zeroed.add(position)

    def position(self, tensor: torch.Tensor) -> int:
        if tensor.data_ptr() not in self._at:
            raise _NotRepeatableError
        return self._at[tensor.data_ptr()]

    def returned(self, result: torch.Tensor) -> int:
        """The position of a result: one of the given themselves, all of what a kernel wrote, or a
        tensor without elements."""
        if not result.numel() and not result.data_ptr():
            self.made.append(result)
            return len(self._given) + len(self.made) - 1
        if result.data_ptr() not in self._written:
            raise _NotRepeatableError
        for i, tensor in enumerate(self._given):
            if tensor is result:
                return i
        made = self.position(result) - len(self._given)
        if made < 0 or extent(self.made[made]) != extent(result):
            raise _NotRepeatableError
        self.made[made] = result  # as it is to be made: of the result's shape and strides
        return len(self._given) + made

    def apart(self) -> tuple[tuple[int, int], ...]:
        """Pairs of given tensors, one of which is written, that do not begin at the same place."""
        at = [t.data_ptr() for t in self._given]
        return tuple(
            (i, j)
            for i, address in enumerate(at)
            for j, other in enumerate(at)
            if address in self._written and other != address
        )


def extent(tensor: torch.Tensor) -> int:
    """Bytes from its first element to the end of its last."""
    begin, end = byte_range(tensor)
    return end - begin
