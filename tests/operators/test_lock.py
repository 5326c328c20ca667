"""The lock with which Triton's LayerNorm tutorial adds up the weight's gradient races: every thread
of a program reads `count`, one of them exchanges it, and nothing keeps them apart. Our backward
pass has no lock; this is why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.op import Grid, Op, StandInTensor, Work
from flash_attention.triton_kit.versions import minor_of
from flash_helpers.emulator import RaceError

ROWS, COLUMNS, GROUPS = 6, 100, 2


@triton.jit
def locked_sum(x, out, lock, columns, GROUPS: tl.constexpr, BARRIER: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = tl.arange(0, 128)
    inside = at < columns
    partial = tl.load(x + row * columns + at, mask=inside, other=0.0)
    group = row % GROUPS
    count = lock + GROUPS + group
    while tl.atomic_cas(lock + group, 0, 1) == 1:
        pass
    seen = tl.load(count)
    if BARRIER:
        tl.debug_barrier()
    if seen == 0:
        tl.atomic_xchg(count, 1)
    else:
        partial += tl.load(out + group * columns + at, mask=inside)
    tl.store(out + group * columns + at, partial, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock + group, 0)


@dataclass(frozen=True)
class Barrier:
    BARRIER: bool = True

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class LockedSum(Op[Barrier, int]):
    name = "locked-sum"
    config_type = Barrier
    written = (1, 2)

    def kernel(self) -> Any:
        return locked_sum

    def space(self, columns: int, architecture: int) -> list[Barrier]:
        return [Barrier()]

    def problems(self, config: Barrier, columns: int) -> list[str]:
        return []

    def arguments(self, config: Barrier, columns: int, tensors: Sequence[Any]) -> list[Any]:
        return [*tensors, columns]

    def constants(self, config: Barrier, columns: int) -> dict[str, Any]:
        return {"GROUPS": GROUPS, **config.as_dict()}

    def grid(self, config: Barrier, columns: int, processors: int) -> Grid:
        return ROWS, 1, 1

    def stand_ins(self, columns: int) -> Sequence[StandInTensor]:
        x, out = (StandInTensor((n, columns), "float32") for n in (ROWS, GROUPS))
        return x, out, StandInTensor((2 * GROUPS,), "int32")

    def key(self, columns: int) -> dict[str, Any]:
        return {"columns": columns}

    def work(self, columns: int) -> Work:
        return Work(0, 0)


def summed(barrier: bool, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn((ROWS, COLUMNS), generator=torch.Generator().manual_seed(seed))
    out, lock = torch.full((GROUPS, COLUMNS), torch.nan), torch.zeros(2 * GROUPS, dtype=torch.int32)
    emulated.run(LockedSum(), Barrier(barrier), COLUMNS, (x, out, lock))
    return out, x.view(-1, GROUPS, COLUMNS).sum(0)


def test_the_lock_of_the_tutorial_races(seed: int) -> None:
    """Up to triton 3.8; later releases put barriers around every atomic operation."""
    if minor_of(triton.__version__) >= (3, 9):
        torch.testing.assert_close(*summed(False, seed))
        return
    with pytest.raises(RaceError, match="global"):
        summed(False, seed)


def test_a_barrier_behind_the_load_mends_it(seed: int) -> None:
    torch.testing.assert_close(*summed(True, seed))
