"""Rows that go through a ring of shared memory, in the emulator, races on, against fp64."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.row_softmax import ring as softmax_ring
from flash_attention.operators.row_softmax.calls import HELD
from flash_attention.operators.row_softmax.calls import RING as SOFTMAX
from flash_attention.operators.rows import ring
from flash_attention.operators.rows.op import row_call
from flash_attention.operators.rows.ring_op import RingConfig, RingOp
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op

from .compare import softmax_excess
from .planting import found, planted
from .values import ordinary

ROWS = 11  # several for each program of the emulator's small GPU

# Rows that fit into the ring with places to spare, that fill it, and that are loaded again.
LENGTHS = {"some": 760, "all": 1024, "more": 1800}
each_length = pytest.mark.parametrize("columns", LENGTHS.values(), ids=list(LENGTHS))
SMALL = RingConfig(256, 4, 1)


def softmax_off(op: RingOp, columns: int, log: bool, seed: int) -> float:
    x = ordinary((ROWS, columns), torch.bfloat16, seed) * 5
    x[1] += torch.linspace(-30, 30, columns).to(x.dtype)  # the maximum rises on the way
    x[2, 3:] = -float("inf")
    x[3] = -float("inf")
    x[4, 100] = float("nan")
    out = torch.full_like(x, 7.0)
    call = row_call(ROWS, columns, (x, out), (x, out), LOG=log, ONLINE=True)
    emulated.run(op, SMALL, call, (x, out))
    return softmax_excess(out, x, log)


@each_length
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
def test_softmax(log: bool, columns: int, seed: int) -> None:
    assert softmax_off(SOFTMAX, columns, log, seed) <= 4


def test_the_default_of_many_long_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only of those that it can take, and is faster for."""
    ran: list[str] = []
    kernel_for = RingOp.kernel_for

    def noted(self: RingOp, *args: Any) -> Any:
        ran.append(self.name)
        return kernel_for(self, *args)

    monkeypatch.setattr(RingOp, "kernel_for", noted)
    x = ordinary((5, 40_008), torch.bfloat16, seed)
    for name in ("softmax", "log_softmax"):
        ran.clear()
        assert softmax_excess(getattr(operators, name)(x), x, name == "log_softmax") <= 4 and ran
    ran.clear()
    assert softmax_excess(operators.softmax(x[:, :32_768]), x[:, :32_768], False) <= 4
    assert ran == [HELD.name]
    ran.clear()
    odd, wider = x[:, :40_001], x.float()
    for other in (x[:3], odd, wider, x[:, :32_761], wider[:, :32_768], x[:, :24_576]):
        operators.softmax(other)
    operators.softmax(x, algorithm="two_pass")
    assert not ran


BUGS: list[tuple[ModuleType, str, str]] = [
    (softmax_ring, "wait_group(SLOTS - HELD)", "wait_group(SLOTS - HELD + 1)"),
    (softmax_ring, "wait_group(SLOTS - 1)", "wait_group(SLOTS)"),
    (softmax_ring, "ring.fill(load + SLOTS)", "ring.fill(load + SLOTS + 1)"),
    (softmax_ring, "* gl.exp(top - below)", ""),
    (softmax_ring, "below = finite(higher)", "below = higher"),
    (softmax_ring, 'v = gl.where(inside, v, -float("inf"))', "pass"),
    (softmax_ring, "y.to(out_at.dtype.element_ty), mask=inside)", "y.to(out_at.dtype.element_ty))"),
]


@pytest.mark.parametrize(("module", "old", "new"), BUGS, ids=[old[:30] for _, old, _ in BUGS])
def test_planted_bugs_are_found(module: ModuleType, old: str, new: str, seed: int) -> None:
    bad = planted(SOFTMAX, module, old, new)
    assert found(lambda: softmax_off(bad, LENGTHS["more"], False, seed) <= 4)


def test_refused() -> None:
    x = torch.zeros(2, 1000, dtype=torch.float16)
    call = row_call(2, 1000, (x, x), (x, x), LOG=False, ONLINE=True)
    with pytest.raises(ValueError, match="262144 bytes of shared memory: at most 232448"):
        emulated.run(SOFTMAX, RingConfig(8192, 16), call, (x, x))
    odd = row_call(2, 1001, (x, x), (x[:, :1], x), LOG=False, ONLINE=True)
    with pytest.raises(ValueError, match="rows do not begin at multiples of 16 bytes"):
        emulated.run(SOFTMAX, SMALL, odd, (x, x))


@pytest.mark.parametrize("columns", [16_384, 65_536, 262_144])
def test_no_spills_and_loads_ahead(columns: int) -> None:
    x = torch.empty(2, columns, dtype=torch.bfloat16)
    call = row_call(2, columns, (x, x), (x, x), LOG=False, ONLINE=True)
    compiled = compile_op(SOFTMAX, SOFTMAX.default(call), call)
    assert compiled.spill_bytes == 0 and compiled.shared_bytes <= 227 * 1024
    assert re.search(r"cp\.async\.cg\.shared\.global .*, 0x10", compiled.ptx)
    assert "st.global.v4.b32" in compiled.ptx and not re.search(r"ld\.global\S*\.v4", compiled.ptx)


def test_a_ring_is_read_by_vectors() -> None:
    """Of 16 bytes: a thread reads what it loaded itself."""
    assert ring.vectors(8, 4).size_per_thread == [1, 8]
