"""Rows that several programs share, in the emulator, races on, against fp64."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.operators.norms import parts as norms
from flash_attention.operators.norms.launches import PARTS as LAYER_NORM
from flash_attention.operators.norms.launches import PARTS_RMS as RMS_NORM
from flash_attention.operators.row_softmax import parts as softmax
from flash_attention.operators.row_softmax.calls import PARTS as SOFTMAX
from flash_attention.operators.rows import exchange
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.operators.rows.parts_op import PartsConfig, PartsOp
from flash_attention.triton_kit import emulated
from flash_helpers.emulator import LaunchOptions

from .compare import norm_excess, softmax_excess
from .planting import found, planted
from .values import ordinary, rows_of_extremes, rows_off_centre

ROWS = 11
CPU = torch.device("cpu")
ORDERS = 10
# Three parts, of which the last has less than a chunk; two whole ones; one.
each_length = pytest.mark.parametrize("columns", [1128, 1024, 248])
FOREVER = 10**6
# How often programs ask for the others' words before they do without: not at all, as long as the
# others need, or in vain, since the last of 28 parts begin when the first have ended.
each_patience = pytest.mark.parametrize(
    ("patience", "columns"), [(0, 1128), (FOREVER, 1128), (3, 28 * 512)]
)


def small(dtype: torch.dtype, warps: int, patience: int = FOREVER) -> PartsConfig:
    """Parts of 1 KiB for each warp, in two chunks."""
    return PartsConfig(1024 * warps // dtype.itemsize, 2, warps, patience)


def emulate(
    op: PartsOp, call: RowCall, *tensors: torch.Tensor, seed: int, config: PartsConfig
) -> float:
    """Programs take turns at random, and none may wait for long. 0 if the words are zero again."""
    words = op.words(config, call, CPU)
    options = LaunchOptions(lane_order="random", seed=seed % 2**31, max_backward_branches=20_000)
    emulated.run(op, config, call, (*tensors, words), options)
    return float("inf") if words.any() else 0.0


def softmax_off(
    op: PartsOp,
    columns: int,
    log: bool,
    seed: int,
    dtype: torch.dtype,
    warps: int = 1,
    patience: int = FOREVER,
    rows: int = ROWS,
) -> float:
    x = rows_of_extremes(rows, columns, dtype, seed)
    out = torch.full_like(x, 7.0)
    call = row_call(rows, columns, (x, out), (x, out), LOG=log, ONLINE=True)
    left = emulate(op, call, x, out, seed=seed, config=small(dtype, warps, patience))
    return max(left, softmax_excess(out, x, log))


@each_length
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_softmax(dtype: torch.dtype, log: bool, columns: int, seed: int) -> None:
    assert softmax_off(SOFTMAX, columns, log, seed, dtype) <= 4


def norm_off(
    op: PartsOp,
    columns: int,
    layer: bool,
    seed: int,
    dtype: torch.dtype,
    warps: int = 1,
    of_vectors: torch.dtype | None = None,
    patience: int = FOREVER,
    rows: int = ROWS,
) -> float:
    """The worst of the output and the statistics."""
    x = rows_off_centre(rows, columns, dtype, seed)
    weight, bias = (ordinary((columns,), of_vectors or dtype, seed + i) for i in (1, 2))
    out = torch.full_like(x, 7.0)
    mean, rstd = (torch.full((rows,), 7.0) for _ in range(2))
    tensors = (x, x, weight, bias, out, x, mean, rstd)
    call = row_call(
        rows, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=layer, RESIDUAL=False,
        WEIGHT=True, BIAS=layer, STATISTICS=True,
    )  # fmt: skip
    left = emulate(op, call, *tensors, seed=seed, config=small(dtype, warps, patience))
    return max(left, norm_excess(out, x, weight, bias, layer, mean, rstd))


@each_length
@pytest.mark.parametrize("op", [LAYER_NORM, RMS_NORM], ids=["layer", "rms"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_norms(dtype: torch.dtype, op: PartsOp, columns: int, seed: int) -> None:
    assert norm_off(op, columns, op is LAYER_NORM, seed, dtype) <= 4


def test_several_warps(seed: int) -> None:
    """And with a weight of fp32."""
    for op in (LAYER_NORM, RMS_NORM):
        for kind in (torch.bfloat16, torch.float32):
            assert norm_off(op, 2216, op is LAYER_NORM, seed, torch.bfloat16, 2, kind) <= 4
    assert softmax_off(SOFTMAX, 2216, False, seed, torch.bfloat16, warps=2) <= 4


@each_patience
def test_who_asks_in_vain_does_without(patience: int, columns: int, seed: int) -> None:
    """In whatever order programs run: in the emulator no more than 24 at a time."""
    for warps in (1, 2):
        how: dict[str, Any] = {"warps": warps, "patience": patience, "rows": 7}
        assert softmax_off(SOFTMAX, columns, False, seed, torch.bfloat16, **how) <= 4
        for op in (LAYER_NORM, RMS_NORM):
            assert norm_off(op, columns, op is LAYER_NORM, seed, torch.bfloat16, **how) <= 4


BUGS: list[tuple[PartsOp, ModuleType, str, str]] = [
    (SOFTMAX, softmax, "row.arrive()", "pass"),
    (SOFTMAX, softmax, 'v = row.known(row.of(part, c, OWN).to(gl.float32), part, c, -float("inf"))',
     "v = row.of(part, c, OWN).to(gl.float32)"),
    (SOFTMAX, softmax, "exp(v - finite(most)", "exp(v - (most)"),
    (SOFTMAX, softmax, "total * exp(top - finite(most))", "total"),
    (SOFTMAX, softmax, "gl.fma(totals, exp(tops - highest), 0.0)", "totals"),
    (SOFTMAX, softmax, 'gl.where(inside, tops, -float("inf"))', "tops"),
    (SOFTMAX, softmax, "exchange.leave_zeros(before)", "pass"),
    (SOFTMAX, softmax, "exchange.publish(top, total)", "exchange.publish(top, total * 0)"),
    (RMS_NORM, norms, "row.arrive()", "pass"),
    (RMS_NORM, norms, "+ index * out_row", "+ row.part * out_row"),
    (LAYER_NORM, norms, "row.known(away - m, part, c, 0.0)", "away - m"),
    (LAYER_NORM, norms, "total += gl.sum(gl.fma(gl.fma(away, away, 0.0), n, 0.0), 0)", "pass"),
    (LAYER_NORM, norms, "gl.minimum(row.columns - part * row.BLOCK, row.BLOCK)", "row.columns"),
    (LAYER_NORM, norms, "gl.sum(squares, 0)\n    m =", "gl.max(squares, 0)\n    m ="),
    (LAYER_NORM, norms, "if row.part == 0:", "if row.part >= 0:"),
]  # fmt: skip

OF_EXCHANGE = [
    ("high ^ 0x80000000", "high"),
    ("self.words + self.part,", "self.words,"),
    ("volatile=True", "volatile=False"),
    ("other=TWO_ZEROS, volatile", "other=0, volatile"),
    ("-(2**63)", "2**62"),
    ("before + 1 == self.parts", "before == 0"),
    ("in range(self.parts)", "in range(self.parts - 1)"),
    ("self.left + nothing, nothing, mask=mask", "self.left + nothing, nothing + 1, mask=mask"),
    ("+ row.to(gl.int64) * parts, left", "+ row.to(gl.int64), left"),
]
# Where programs do without: found only there.
OF_THE_OTHER_WAY: list[tuple[PartsOp, ModuleType, str, str]] = [
    (SOFTMAX, softmax, "of_part(row, part, False)", "of_part(row, row.part, False)"),
    (SOFTMAX, softmax, "gl.where(each == part, total, totals)", "totals"),
    (SOFTMAX, softmax, "if there == 0:", "if 1 == 0:"),
    (LAYER_NORM, norms, "of_part(row, part, LAYER, False)", "of_part(row, row.part, LAYER, False)"),
    (LAYER_NORM, norms, "gl.where(each == part, m, means)", "means"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "module", "old", "new"), OF_THE_OTHER_WAY, ids=[x[2][:40] for x in OF_THE_OTHER_WAY]
)
def test_bugs_of_the_other_way_are_found(
    op: PartsOp, module: ModuleType, old: str, new: str, seed: int
) -> None:
    bad = planted(op, module, old, new)
    how: dict[str, Any] = {"patience": 0, "rows": 7}
    if op is SOFTMAX:
        assert found(lambda: softmax_off(bad, 1128, False, seed, torch.bfloat16, **how) <= 4)
    else:
        assert found(lambda: norm_off(bad, 1128, True, seed, torch.bfloat16, **how) <= 4)


@pytest.mark.parametrize(("old", "new"), OF_EXCHANGE, ids=[old[:40] for old, _ in OF_EXCHANGE])
def test_bugs_of_the_exchange_are_found(old: str, new: str, seed: int) -> None:
    """In one of some orders in which the programs take turns: not each shows every bug."""
    bad = planted(LAYER_NORM, norms, old, new, exchange)

    def right(order: int) -> bool:
        return norm_off(bad, 2216, True, order, torch.bfloat16, warps=2) <= 4

    assert any(found(partial(right, seed + i)) for i in range(ORDERS))


@pytest.mark.parametrize(
    ("op", "module", "old", "new"), BUGS, ids=[old[:40] for _, _, old, _ in BUGS]
)
def test_planted_bugs_are_found(
    op: PartsOp, module: ModuleType, old: str, new: str, seed: int
) -> None:
    bad = planted(op, module, old, new)
    if op is SOFTMAX:
        assert found(lambda: softmax_off(bad, 1128, False, seed, torch.bfloat16) <= 4)
    else:
        is_layer = op is LAYER_NORM
        assert found(lambda: norm_off(bad, 2216, is_layer, seed, torch.bfloat16, warps=2) <= 4)
