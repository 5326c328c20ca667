"""Rows that go through a ring of shared memory, in the emulator, races on, against fp64."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, cast

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.operators.norms import launches
from flash_attention.operators.norms import ring as norm_ring
from flash_attention.operators.row_softmax import ring as softmax_ring
from flash_attention.operators.row_softmax.calls import FORWARD
from flash_attention.operators.rows import ring
from flash_attention.operators.rows.op import row_call
from flash_attention.operators.rows.ring_op import RingConfig, RingOp
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op

from .compare import excess
from .planting import found, planted
from .values import ordinary

SOFTMAX = RingOp("row_softmax.ring", FORWARD)
NORM = RingOp("norms.ring", launches.FORWARD)
NORM_BACKWARD = RingOp("norms.ring", launches.ROWS_LOOPED, 2)
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
    wide = x.double()
    exact = (torch.log_softmax if log else torch.softmax)(wide, -1)
    far = (wide - wide.max(-1, keepdim=True).values).abs().nan_to_num(0.0, 0.0, 0.0)
    return excess(out, exact, 1 + far if log else exact * (1 + far))


@each_length
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
def test_softmax(log: bool, columns: int, seed: int) -> None:
    assert softmax_off(SOFTMAX, columns, log, seed) <= 4


def exact_norm(layer: bool, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
    away = x - x.mean(-1, keepdim=True) if layer else x
    y = away / (away.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    return y if bias is None else y + cast("torch.Tensor", bias)


def norm_off(op: RingOp, layer: bool, columns: int, seed: int, dtype: torch.dtype) -> float:
    x = ordinary((ROWS, columns), dtype, seed) + 3
    weight, bias = (ordinary((columns,), dtype, seed + i) for i in (1, 2))
    out, statistics = torch.full_like(x, 7.0), [torch.full((ROWS,), 7.0) for _ in range(2)]
    tensors = (x, x, weight, bias, out, out, *statistics)
    call = row_call(
        ROWS, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=layer, RESIDUAL=False,
        WEIGHT=True, BIAS=layer, STATISTICS=True,
    )  # fmt: skip
    emulated.run(op, SMALL, call, tensors)
    wide = x.double()
    wanted = exact_norm(layer, wide, weight.double(), bias.double() if layer else None)
    mean = wide.mean(-1) if layer else torch.zeros(ROWS, dtype=torch.float64)
    off = excess(statistics[0], mean, 3.0)
    return max(off, excess(out, wanted, 10.0))


@each_length
@pytest.mark.parametrize("layer", [False, True], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_norms(layer: bool, columns: int, dtype: torch.dtype, seed: int) -> None:
    assert norm_off(NORM, layer, columns, seed, dtype) <= 8


def gradient_off(op: RingOp, layer: bool, columns: int, seed: int) -> float:
    grad, x, added = (ordinary((ROWS, columns), torch.float16, seed + i) for i in range(3))
    weight = ordinary((columns,), torch.float16, seed + 3)
    wide = x.double().requires_grad_()
    y = exact_norm(layer, wide, weight.double(), None)
    (wanted,) = torch.autograd.grad(y, wide, grad.double())
    mean = x.double().mean(-1) if layer else torch.zeros(ROWS, dtype=torch.float64)
    rstd = ((x.double() - mean[:, None]).square().mean(-1) + 1e-5).rsqrt().float()
    mean, dx = mean.float(), torch.full_like(x, 7.0)
    tensors = (grad, x, added, weight, mean, rstd, dx, mean, mean)
    call = row_call(
        ROWS, columns, tensors, (grad, x, added, dx), LAYER=layer, ADDED=True, WEIGHT=True,
        BIAS=False,
    )  # fmt: skip
    emulated.run(op, SMALL, call, tensors)
    return excess(dx, wanted + added.double(), wanted.abs().max())


@each_length
@pytest.mark.parametrize("layer", [False, True], ids=["rms", "layer"])
def test_gradients_of_norms(layer: bool, columns: int, seed: int) -> None:
    assert gradient_off(NORM_BACKWARD, layer, columns, seed) <= 16


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


NORM_BUGS = [
    ("1.0 / (block + 1)", "1.0 / (block + 2)"),
    ("squares += away * away * n", "squares += away * away"),
    ("y += b", "y += w"),
    ("m = whole(gl.fma(means, n, 0.0)) / length", "m = whole(means) / BLOCK"),
]


@pytest.mark.parametrize(("old", "new"), NORM_BUGS)
def test_planted_bugs_of_norms_are_found(old: str, new: str, seed: int) -> None:
    bad = planted(NORM, norm_ring, old, new)
    assert found(lambda: norm_off(bad, True, LENGTHS["more"], seed, torch.float32) <= 8)


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
