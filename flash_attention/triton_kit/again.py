"""A call that is repeated for other tensors of the same kind: all but addresses and the stream is
known, so neither what the call computed nor Triton's own way through its cache is gone again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from .machine import Machine, Start

Result = torch.Tensor | tuple[torch.Tensor, ...]
# Of the given tensors and their addresses, to which those of tensors that are made are appended.
# None, and nothing was launched, where the call must be checked anew.
Again = Callable[[list[torch.Tensor], list[int]], Result | None]


Describe = Callable[[torch.Tensor], Any]  # a TMA descriptor of a tensor


@dataclass(frozen=True)
class Step:
    """A launch. Its first arguments are addresses, at these positions among those of all tensors,
    given and made, or what `describe` makes of these tensors; the `rest` is the same in every
    call."""

    start: Start
    addresses: tuple[int, ...]
    rest: tuple[Any, ...]
    describe: tuple[Describe, ...] = ()


@dataclass(frozen=True)
class Memory:
    """`needed`: the bytes that each given tensor has from its first element on, and those of an
    element; `apart`: pairs of given tensors, one of which is written, that must not overlap;
    `made`: size, stride and type of each tensor that is made."""

    needed: tuple[tuple[int, int], ...]
    apart: tuple[tuple[int, int], ...]
    made: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]

    def is_held(self, given: Sequence[torch.Tensor], at: Sequence[int]) -> bool:
        """Whether the tensors still have the memory, and lie apart."""
        needed = self.needed
        for tensor, (n_bytes, item) in zip(given, needed, strict=True):
            if tensor.untyped_storage().nbytes() < tensor.storage_offset() * item + n_bytes:
                return False
        for i, j in self.apart:
            if at[i] < at[j] + needed[j][0] and at[j] < at[i] + needed[i][0]:
                return False
        return True


def again(
    machine: Machine, device: int, steps: Sequence[Step], memory: Memory, result: tuple[int, ...],
    single: bool,
) -> Again:  # fmt: skip
    """The call that makes these steps on a device, and returns the tensors at the positions
    `result` among those given and made; `single`: not as a tuple."""
    ready, stream_of, empty, is_held = machine.ready, machine.stream, machine.empty, memory.is_held
    launches = [(step.start, _picker(step.addresses), step.rest, step.describe) for step in steps]
    made = memory.made
    only = result[0] if single else None

    def call(given: list[torch.Tensor], at: list[int]) -> Result | None:
        if not (ready(device) and is_held(given, at)):
            return None
        for size, stride, dtype in made:
            tensor = empty(size, stride, dtype)
            given.append(tensor)
            at.append(tensor.data_ptr())
        stream = stream_of(device)
        for start, pick, rest, describe in launches:
            if describe:
                first = tuple([of(x) for of, x in zip(describe, pick(given), strict=True)])
                start(stream, first + rest)
            else:
                start(stream, pick(at) + rest)
        return given[only] if only is not None else tuple([given[i] for i in result])

    return call


def _picker(positions: tuple[int, ...]) -> Callable[[list[Any]], tuple[Any, ...]]:
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda at: tuple(at[i] for i in positions)
