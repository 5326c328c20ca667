"""Rows that one program computes, in registers or in steps, in the emulator, races on, against
fp64; which rows these are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.norms import alone as norms
from flash_attention.operators.norms.launches import ALONE as LAYER_NORM
from flash_attention.operators.norms.launches import ALONE_RMS as RMS_NORM
from flash_attention.operators.row_softmax import alone as softmax
from flash_attention.operators.row_softmax.calls import ALONE as SOFTMAX
from flash_attention.operators.rows import alone
from flash_attention.operators.rows.alone_op import AloneConfig, AloneOp
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op
from flash_helpers.emulator import LaunchOptions

from .compare import excess, norm_excess, softmax_excess
from .planting import found, planted
from .values import ordinary, rows_of_extremes, rows_off_centre

ROWS = 7
# Softmax and LayerNorm take all of a row at once, RMSNorm steps.
WHOLE, STEPS = AloneConfig(2048, 2, 4), AloneConfig(512, 1, 4)
each_length = pytest.mark.parametrize("columns", [1128, 2048])
each_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)


def emulate(op: AloneOp, call: RowCall, *tensors: torch.Tensor, seed: int) -> None:
    config = STEPS if op.steps else WHOLE
    options = LaunchOptions(lane_order="random", seed=seed % 2**31)
    emulated.run(op, config, call, tensors, options)


def softmax_off(
    op: AloneOp, columns: int, log: bool, seed: int, dtype: torch.dtype = torch.bfloat16
) -> float:
    x = rows_of_extremes(ROWS, columns, dtype, seed)
    out = torch.full_like(x, 7.0)
    call = row_call(ROWS, columns, (x, out), (x, out), LOG=log, ONLINE=True)
    emulate(op, call, x, out, seed=seed)
    return softmax_excess(out, x, log)


@each_length
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@each_dtype
def test_softmax(dtype: torch.dtype, log: bool, columns: int, seed: int) -> None:
    assert softmax_off(SOFTMAX, columns, log, seed, dtype) <= 4


def norm_off(
    op: AloneOp, columns: int, seed: int, dtype: torch.dtype = torch.bfloat16,
    of_vectors: torch.dtype | None = None, statistics: bool = True,
) -> float:  # fmt: skip
    """The worst of the output and the statistics."""
    layer = not op.steps
    x = rows_off_centre(ROWS, columns, dtype, seed)
    weight, bias = (ordinary((columns,), of_vectors or dtype, seed + i) for i in (1, 2))
    out = torch.full_like(x, 7.0)
    mean, rstd = (torch.full((ROWS,), 7.0) for _ in range(2))
    tensors = (x, x, weight, bias, out, x, mean, rstd)
    call = row_call(
        ROWS, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=layer, RESIDUAL=False,
        WEIGHT=True, BIAS=layer, STATISTICS=statistics,
    )  # fmt: skip
    emulate(op, call, *tensors, seed=seed)
    if not statistics:
        assert (mean == 7).all() and (rstd == 7).all()
    return norm_excess(out, x, weight, bias, layer, mean, rstd if statistics else None)


@each_length
@each_dtype
def test_norms(dtype: torch.dtype, columns: int, seed: int) -> None:
    """And with weights of another type."""
    for of_vectors, statistics in ((None, True), (torch.float32, False)):
        how: dict[str, Any] = {"of_vectors": of_vectors, "statistics": statistics}
        for op in (LAYER_NORM, RMS_NORM):
            assert norm_off(op, columns, seed, dtype, **how) <= 4


BUGS: list[tuple[AloneOp, ModuleType, str, str]] = [
    (SOFTMAX, softmax, 'row.once(x, x_row, -float("inf"))', "row.once(x, x_row, 0.0)"),
    (SOFTMAX, softmax, "v - finite(top)", "v - (top)"),
    (SOFTMAX, softmax, "exp(top - highest)", "exp(top - top)"),
    (SOFTMAX, softmax, "each_sum(e)), 0, joined", "top * 0 + 1.0), 0, joined"),
    (RMS_NORM, norms, "squares += ", "squares = "),
    (RMS_NORM, norms, "row.shared(weight, first)", "row.shared(weight, 0)"),
    (RMS_NORM, norms, "/ length + eps)\n        for", "/ BLOCK + eps)\n        for"),
    (LAYER_NORM, norms, "row.known(same(raw).to(gl.float32) - m, 0.0)",
     "same(raw).to(gl.float32) - m"),
    (LAYER_NORM, norms, "- m) * r", "- 0.0) * r"),
    (LAYER_NORM, norms, "gl.store(mean + row.index, m)", "pass"),
    (LAYER_NORM, norms, "gl.store(rstd + row.index, r)", "pass"),
]  # fmt: skip

OF_ROWS = [
    ("self.index * stride", "0"),
    ("return first + vectors", "return vectors"),
    ("self.vector(first) < self.columns", "self.vector(first) >= 0"),
    ('"mov.b32 $0, $1;"', '"not.b32 $0, $1;"'),
]


@pytest.mark.parametrize(
    ("op", "module", "old", "new"), BUGS, ids=[old[:40] for _, _, old, _ in BUGS]
)
def test_planted_bugs_are_found(
    op: AloneOp, module: ModuleType, old: str, new: str, seed: int
) -> None:
    bad = planted(op, module, old, new)
    if op is SOFTMAX:
        assert found(lambda: softmax_off(bad, 1128, False, seed) <= 4)
    else:
        assert found(lambda: norm_off(bad, 1128, seed) <= 4)


@pytest.mark.parametrize(("old", "new"), OF_ROWS, ids=[old[:40] for old, _ in OF_ROWS])
def test_bugs_of_rows_are_found(old: str, new: str, seed: int) -> None:
    """By one of the norms: RMSNorm alone goes in steps, LayerNorm alone needs the same numbers."""
    steps, whole = (planted(op, norms, old, new, alone) for op in (RMS_NORM, LAYER_NORM))
    found_in_steps = found(lambda: norm_off(steps, 1128, seed) <= 4)
    assert found_in_steps or found(lambda: norm_off(whole, 1128, seed) <= 4)


def call_of(columns: int, dtype: torch.dtype, layer: bool, **switches: bool) -> RowCall:
    x, w, one = (torch.empty(n, dtype=dtype) for n in ((2, columns), columns, 2))
    tensors = (x, x, w, w, x, x, one.float(), one.float())
    given: dict[str, Any] = {"RESIDUAL": False, "WEIGHT": True, "STATISTICS": True, **switches}
    return row_call(
        2, columns, tensors, (x, x, x), numbers=(1e-5,), LAYER=layer, BIAS=layer, **given
    )


def softmax_call(columns: int, dtype: torch.dtype) -> RowCall:
    x = torch.empty(2, columns, dtype=dtype)
    return row_call(2, columns, (x, x), (x, x), LOG=False, ONLINE=True)


def blocks(op: AloneOp, calls: list[RowCall]) -> list[tuple[int, int] | None]:
    spaces = [op.space(call, 90) for call in calls]
    return [(space[0].BLOCK, space[0].num_warps) if space else None for space in spaces]


def test_which_rows() -> None:
    """None where another kernel is faster."""
    half, single = torch.bfloat16, torch.float32
    lengths = (8192, 12_280, 12_288, 15_368, 16_384, 20_480, 28_672, 32_768, 32_776)
    eight, sixteen = (16_384, 8), (16_384, 16)
    assert blocks(SOFTMAX, [softmax_call(n, half) for n in lengths]) == [
        None, None, eight, eight, eight, None, None, None, None
    ]  # fmt: skip
    assert blocks(LAYER_NORM, [call_of(n, half, True) for n in lengths]) == [
        None, None, None, sixteen, sixteen, None, None, None, None
    ]  # fmt: skip
    assert blocks(RMS_NORM, [call_of(n, half, False) for n in lengths]) == [
        None, None, None, (4096, 16), (4096, 16), None, (8192, 32), (8192, 32), None
    ]  # fmt: skip
    of_fp32 = (8192, 9216, 12_288, 12_292, 16_384, 16_388)
    assert blocks(SOFTMAX, [softmax_call(n, single) for n in of_fp32]) == [
        None, sixteen, sixteen, sixteen, sixteen, None
    ]  # fmt: skip
    assert blocks(LAYER_NORM, [call_of(n, single, True) for n in of_fp32]) == [
        None, None, None, sixteen, sixteen, None
    ]  # fmt: skip
    assert blocks(RMS_NORM, [call_of(n, single, False) for n in of_fp32]) == [
        None, None, (8192, 32), (8192, 32), (8192, 32), None
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [15_368, 16_384, 28_680, 32_768])
@each_dtype
def test_loads_are_whole_vectors_and_registers_are_few(columns: int, dtype: torch.dtype) -> None:
    for op, call in (
        (SOFTMAX, softmax_call(columns, dtype)), (LAYER_NORM, call_of(columns, dtype, True)),
        (RMS_NORM, call_of(columns, dtype, False)),
    ):  # fmt: skip
        for config in op.space(call, 90):
            compiled = compile_op(op, config, call, architecture=90)
            assert compiled.registers * 32 * config.num_warps * config.programs <= 65_536
            assert compiled.spill_bytes <= 64
            loads = [line for line in compiled.ptx.splitlines() if "ld.global" in line]
            assert loads and all(".v4.b32" in line for line in loads)


def test_refused() -> None:
    call = call_of(1128, torch.bfloat16, True)
    for config, reason in (
        (AloneConfig(512, 3), "num_warps 3: allowed are powers of two up to 32"),
        (AloneConfig(8192, 2), "BLOCK 8192: allowed are 512, 1024, 2048, 4096 with 64 threads"),
        (AloneConfig(1024, 1), "BLOCK 1024: rows of 1128 need more"),
        (AloneConfig(2048, 4, 17), "programs 17: 16 have 32 registers a thread"),
        (AloneConfig(2048, 4, 0), "programs 0: 16 have 32 registers a thread"),
    ):
        assert reason in "; ".join(LAYER_NORM.problems(config, call))
    assert not RMS_NORM.problems(AloneConfig(1024, 1), call_of(1128, torch.bfloat16, False))
    added = call_of(1128, torch.bfloat16, True, RESIDUAL=True)
    assert LAYER_NORM.problems(WHOLE, added) == ["RESIDUAL: the kernel adds none"]
    odd = replace(softmax_call(16_384, torch.bfloat16), align=4)
    assert not SOFTMAX.space(odd, 90)


def test_through_the_operators(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By configuration, and by default, of such rows only."""
    x = ordinary((3, 1000), torch.float16, seed)
    exact = x.double()
    got = operators.softmax(x, config=WHOLE)
    assert excess(got, exact.softmax(-1), exact.softmax(-1)) <= 4
    r = (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(x, config=STEPS), exact * r, (exact * r).abs()) <= 4
    with pytest.raises(ValueError, match="RESIDUAL: the kernel adds none"):
        operators.rms_norm(x, residual=x, config=WHOLE)
    ran: list[str] = []

    def noted(self: AloneOp, call: RowCall, x: torch.Tensor) -> bool:
        ran.append(self.name)
        return bool(self.space(call, 90))

    monkeypatch.setattr(AloneOp, "is_faster", noted)
    long = ordinary((2, 16_384), torch.bfloat16, seed)
    assert softmax_excess(operators.softmax(long), long, False) <= 4
    for norm in (operators.layer_norm, operators.rms_norm):
        is_layer = norm is operators.layer_norm
        exact = long.double() - long.double().mean(-1, keepdim=True) * is_layer
        exact *= (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        assert excess(norm(long, eps=1e-6), exact, exact.abs() + 1) <= 4
    assert ran == ["row_softmax.alone.forward", "norms.alone.forward", "norms.alone.forward"]
    assert operators.layer_norm(long, residual=long)[0].isfinite().all()


def test_few_rows_are_shared() -> None:
    x = torch.empty(2, 16_384, dtype=torch.bfloat16)
    for op, call in (
        (SOFTMAX, softmax_call(16_384, x.dtype)), (LAYER_NORM, call_of(16_384, x.dtype, True)),
        (RMS_NORM, call_of(16_384, x.dtype, False)),
    ):  # fmt: skip
        assert op.is_faster(replace(call, rows=1024), x)
        assert not op.is_faster(replace(call, rows=1023), x)
        assert not op.is_faster(replace(call, rows=1024, columns=8192), x)
        assert not op.is_faster(replace(call, rows=1024, aligned=False), x)
