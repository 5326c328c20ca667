"""Rows in registers as they are stored, in the emulator, races on, against fp64."""

from __future__ import annotations

import re
from dataclasses import replace
from types import ModuleType

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.norms import held as norms_held
from flash_attention.operators.norms.launches import HELD as NORM
from flash_attention.operators.row_softmax import held as softmax_held
from flash_attention.operators.row_softmax.calls import HELD as SOFTMAX
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.operators.rows.ring_op import HeldOp, RingConfig
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op

from .compare import excess, softmax_excess
from .planting import found, planted
from .values import ordinary

ROWS = 11  # several for each program of the emulator's small GPU
SMALL = RingConfig(1024, 2, 1)
each_length = pytest.mark.parametrize("columns", [760, 1024])


def softmax_off(op: HeldOp, columns: int, log: bool, seed: int, dtype: torch.dtype) -> float:
    x = ordinary((ROWS, columns), dtype, seed) * 5
    x[1] += 300  # whose exponential is no number
    x[2, 3:] = -float("inf")
    x[3] = -float("inf")
    x[4, 100] = float("nan")
    out = torch.full_like(x, 7.0)
    call = row_call(ROWS, columns, (x, out), (x, out), LOG=log, ONLINE=True)
    emulated.run(op, SMALL, call, (x, out))
    return softmax_excess(out, x, log)


@each_length
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_softmax(dtype: torch.dtype, log: bool, columns: int, seed: int) -> None:
    assert softmax_off(SOFTMAX, columns, log, seed, dtype) <= 4


def norm_off(op: HeldOp, columns: int, layer: bool, seed: int, dtype: torch.dtype) -> float:
    """The worst of the output and the statistics."""
    x = ordinary((ROWS, columns), dtype, seed) + 3
    weight, bias = (ordinary((columns,), dtype, seed + i) for i in (1, 2))
    out = torch.full_like(x, 7.0)
    mean, rstd = (torch.full((ROWS,), 7.0) for _ in range(2))
    tensors = (x, x, weight, bias, out, x, mean, rstd)
    call = row_call(
        ROWS, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=layer, RESIDUAL=False,
        WEIGHT=True, BIAS=layer, STATISTICS=True,
    )  # fmt: skip
    emulated.run(op, SMALL, call, tensors)
    wide, w, b = x.double(), weight.double(), bias.double()
    m = wide.mean(-1, keepdim=True) * layer
    r = ((wide - m).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    hat = (wide - m) * r
    # An element of the mean is rounded in proportion to the sum of sizes.
    size = (hat.abs() + wide.abs().mean(-1, keepdim=True) * r) * w.abs()
    off = excess(out, hat * w + b * layer, size + b.abs() * layer)
    statistics = [(rstd, r[:, 0])] + ([(mean, m[:, 0])] if layer else [])
    return max(off, *(excess(got, exact, 8 * exact.abs()) for got, exact in statistics))


@each_length
@pytest.mark.parametrize("layer", [False, True], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_norms(dtype: torch.dtype, layer: bool, columns: int, seed: int) -> None:
    assert norm_off(NORM, columns, layer, seed, dtype) <= 4


BUGS: list[tuple[ModuleType, str, str]] = [
    (softmax_held, "wait_group(SLOTS - 1)", "wait_group(SLOTS)"),
    (softmax_held, "ring.fill(load + SLOTS)", "ring.fill(load + SLOTS + 1)"),
    (softmax_held, 'v = gl.where(inside, v, -float("inf"))', "pass"),
    (softmax_held, ".to(gl.float32) - most)", ".to(gl.float32))"),
    (norms_held, "wait_group(SLOTS - 1)", "wait_group(SLOTS)"),
    (norms_held, "gl.where(inside, as_stored(v).to(gl.float32) - m, 0.0)",
     "as_stored(v).to(gl.float32) - m"),
    (norms_held, "out_at + column, y.to(out.dtype.element_ty), mask=inside)",
     "out_at + column, y.to(out.dtype.element_ty))"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "old", "new"), BUGS, ids=[old[:30] for _, old, _ in BUGS])
def test_planted_bugs_are_found(module: ModuleType, old: str, new: str, seed: int) -> None:
    if module is softmax_held:
        bad = planted(SOFTMAX, module, old, new)
        assert found(lambda: softmax_off(bad, 760, False, seed, torch.bfloat16) <= 4)
    else:
        bad = planted(NORM, module, old, new)
        assert found(lambda: norm_off(bad, 760, True, seed, torch.bfloat16) <= 4)


def calls(columns: int) -> list[tuple[HeldOp, RowCall]]:
    x, w, one = (torch.empty(n, dtype=torch.bfloat16) for n in ((2, columns), columns, 2))
    norm = row_call(
        2, columns, (x, x, w, w, x, x, one.float(), one.float()), (x, x, x), numbers=(1e-5,),
        LAYER=True, RESIDUAL=False, WEIGHT=True, BIAS=True, STATISTICS=False,
    )  # fmt: skip
    return [(SOFTMAX, row_call(2, columns, (x, x), (x, x), LOG=False, ONLINE=True)), (NORM, norm)]


@pytest.mark.parametrize("columns", [16_384, 32_768])
def test_no_spills_and_whole_rows_ahead(columns: int) -> None:
    for op, call in calls(columns):
        compiled = compile_op(op, op.default(call), call)
        assert compiled.spill_bytes == 0 and compiled.shared_bytes <= 227 * 1024
        assert re.search(r"cp\.async\.cg\.shared\.global .*, 0x10", compiled.ptx)


def test_refused() -> None:
    (op, call), (norm, residual) = calls(1024)
    for config, reason in (
        (RingConfig(512, 2, 1), "BLOCK 512: expected a power of two, at least 1024"),
        (RingConfig(1024, 0, 1), "SLOTS 0: at least 1"),
        (RingConfig(65536, 1, 32), "131072 bytes of rows in registers: more than a quarter"),
        (RingConfig(32768, 1, 16, 2), "131072 bytes of rows in registers: more than a quarter"),
        (RingConfig(16384, 2, 2), "32768 bytes of rows in registers: more than a quarter"),
        (RingConfig(1024, 2, 32, 4), "more than 64 warps on a multiprocessor"),
        (RingConfig(1024, 2, 3), "num_warps 3: allowed are 1, 2, 4"),
    ):
        assert reason in "; ".join(op.problems(config, call))
    added = replace(residual, switches=(*residual.switches[1:], ("RESIDUAL", True)))
    assert norm.problems(SMALL, added) == ["RESIDUAL: the kernel adds none"]
    assert not op.space(calls(40_000)[0][1], 90)


def test_by_configuration(seed: int) -> None:
    """Through the operators; without one, rows go the way they went before."""
    x = ordinary((5, 1000), torch.float16, seed)
    exact = x.double()
    got = operators.softmax(x, config=SMALL)
    assert excess(got, exact.softmax(-1), exact.softmax(-1)) <= 4
    r = (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(x, config=SMALL), exact * r, (exact * r).abs()) <= 4
    with pytest.raises(ValueError, match="RESIDUAL: the kernel adds none"):
        operators.rms_norm(x, residual=x, config=SMALL)
    with pytest.raises(ValueError, match="expected a power of two, at least 1000"):
        operators.log_softmax(x, config=RingConfig(512, 2, 1))
