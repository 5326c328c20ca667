"""A call that is repeated for other tensors of the same kind: all but addresses and the stream is
known, so neither what the call computed nor Triton's own way through its cache is gone again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from .launchers import Direct, Packed, Start
from .machine import Machine, ready

Result = torch.Tensor | tuple[torch.Tensor, ...]
# Of the given tensors and their addresses, to which those of tensors that are made are appended.
# None, and nothing was launched, where the call must be checked anew.
Again = Callable[[list[torch.Tensor], list[int]], Result | None]

Describe = Callable[[torch.Tensor], Any]  # a TMA descriptor of a tensor
_Described = Callable[[int, tuple[int, ...], tuple[torch.Tensor, ...]], object]
# Of one launch. An output that is at another place at every call would fill the memory.
MOST_PREPARED = 1024
MOST_KEPT = 2**20  # bytes of scratch memory of a stream


@dataclass(frozen=True)
class Step:
    """A launch. Its first arguments are addresses, at these positions among those of all tensors,
    given and made, or what `describe` makes of these tensors; the `rest` is the same in every
    call. What `direct` prepares of descriptors is kept. `packed`: for the extension."""

    start: Start
    addresses: tuple[int, ...]
    rest: tuple[Any, ...]
    describe: tuple[Describe, ...] = ()
    direct: Direct | None = None
    packed: Packed | None = None


@dataclass(frozen=True)
class Memory:
    """`needed`: the bytes that each given tensor has from its first element on, and those of an
    element; `apart`: pairs of given tensors, one of which is written, that must not overlap;
    `made`: size, stride and type of each tensor that is made; `scratch`: where, in one more piece
    of memory of `scratch_bytes`, those begin that nobody gets to see; `zero_bytes`: of the last
    tensor, if there is one that launches find zero, and leave zero."""

    needed: tuple[tuple[int, int], ...]
    apart: tuple[tuple[int, int], ...]
    made: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    scratch: tuple[int, ...] = ()
    scratch_bytes: int = 0
    zero_bytes: int = 0

    def is_held(self, given: Sequence[torch.Tensor], at: Sequence[int]) -> bool:
        """Whether the tensors still have the memory, and lie apart."""
        for i, (n_bytes, item) in enumerate(self.needed):
            tensor = given[i]
            if tensor.untyped_storage().nbytes() < tensor.storage_offset() * item + n_bytes:
                return False
        for i, j in self.apart:
            if at[i] < at[j] + self.needed[j][0] and at[j] < at[i] + self.needed[i][0]:
                return False
        return True


def again(
    machine: Machine, device: int, steps: Sequence[Step], memory: Memory, result: tuple[int, ...],
    single: bool,
) -> Again:  # fmt: skip
    """The call that makes these steps on a device, and returns the tensors at the positions
    `result` among those given and made; `single`: not as a tuple."""
    native = _native(machine, device, steps, memory, result, single)
    if native is not None:
        return native
    is_ready, stream_of, empty = ready(machine), machine.stream, machine.empty
    is_held = memory.is_held
    launches = [
        (step.start, _picker(step.addresses), step.rest, _described(step)) for step in steps
    ]
    made, scratch, size_of_scratch = memory.made, memory.scratch, (memory.scratch_bytes,)
    zeros = memory.zero_bytes
    only = result[0] if single else None

    def call(given: list[torch.Tensor], at: list[int]) -> Result | None:
        if not (is_ready(device) and is_held(given, at)):
            return None
        for size, stride, dtype in made:
            tensor = empty(size, stride, dtype)
            given.append(tensor)
            at.append(tensor.data_ptr())
        if scratch:
            # Free again once the launches are queued: what comes later on the stream may have it.
            piece = empty(size_of_scratch, (1,), torch.uint8)
            base = piece.data_ptr()
            at += [base + offset for offset in scratch]
        if zeros:
            nothing = machine.zeros(zeros)
            at.append(nothing.data_ptr())
        stream = stream_of(device)
        for start, pick, rest, described in launches:
            if described is None:
                start(stream, pick(at) + rest)
            else:
                described(stream, pick(at), pick(given))
        return given[only] if only is not None else tuple([given[i] for i in result])

    return call


def _native(
    machine: Machine, device: int, steps: Sequence[Step], memory: Memory, result: tuple[int, ...],
    single: bool,
) -> Again | None:  # fmt: skip
    """The same in C++; None where the machine, or a step, does not go there."""
    repeated = machine.repeated
    launches = []
    for step in steps:
        packed = step.packed
        if packed is None or len(packed.pointers) != len(step.addresses):
            return None
        tensors = dict(zip(packed.pointers, step.addresses, strict=True))
        maps = [(i, tensors.pop(i), *packed.maps[i]) for i in packed.maps]
        sizes = (
            packed.function, packed.grid, packed.threads, packed.shared_bytes, packed.cooperative,
            packed.cluster,
        )  # fmt: skip
        launches.append((*sizes, packed.parameters, list(tensors.items()), maps))
    if repeated is None:
        return None
    made, kept = list(memory.made), (memory.zero_bytes, 0)
    if memory.zero_bytes and memory.scratch_bytes <= MOST_KEPT:
        kept = memory.zero_bytes, memory.scratch_bytes
    elif memory.scratch:
        made.append(((memory.scratch_bytes,), (1,), torch.uint8))
    try:
        return repeated(  # type: ignore[no-any-return]
            machine.hooks, machine.current_device, machine.stream, machine.empty, machine.zeros,
            device, memory.needed, memory.apart, made, memory.scratch, kept, launches,
            result, single,
        ).again  # fmt: skip
    except ValueError:  # more tensors than it takes, or a map that is not as the driver makes it
        return None


def _described(step: Step) -> _Described | None:
    """The launch of a step whose tensors are described; None for one that gets addresses. What was
    made of an address is right for whatever tensor lies there, of those that the call is repeated
    for."""
    start, describe, rest, direct = step.start, step.describe, step.rest, step.direct
    prepared: dict[tuple[int, tuple[int, ...]], tuple[Any, ...]] = {}
    if not describe:
        return None

    def arguments(tensors: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        return tuple([of(x) for of, x in zip(describe, tensors, strict=True)]) + rest

    if direct is None:
        return lambda stream, at, tensors: start(stream, arguments(tensors))
    prepare, in_c = direct.prepare, direct.in_c

    def go(stream: int, at: tuple[int, ...], tensors: tuple[torch.Tensor, ...]) -> None:
        parts = prepared.get((stream, at))
        if parts is None:
            if len(prepared) >= MOST_PREPARED:
                prepared.clear()
            parts = prepared[stream, at] = prepare(stream, arguments(tensors))
        in_c(*parts)

    return go


def _picker(positions: tuple[int, ...]) -> Callable[[list[Any]], tuple[Any, ...]]:
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda at: tuple(at[i] for i in positions)
