"""Rows that several programs share, in the emulator, races on, against fp64."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.norms import parts as norms
from flash_attention.operators.norms.launches import PARTS as LAYER_NORM
from flash_attention.operators.norms.launches import PARTS_RMS as RMS_NORM
from flash_attention.operators.row_softmax import parts as softmax
from flash_attention.operators.row_softmax.calls import PARTS as SOFTMAX
from flash_attention.operators.rows import exchange
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.operators.rows.parts_op import PartsConfig, PartsOp
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op
from flash_helpers.emulator import LaunchOptions

from .compare import excess, softmax_excess
from .planting import found, planted
from .values import ordinary

ROWS = 41  # more turns of the emulator's small GPU than an exchange keeps
CPU = torch.device("cpu")
ORDERS = 10
# Three parts, of which the last is not whole; four whole ones; one.
each_length = pytest.mark.parametrize("columns", [616, 1024, 248])


def small(op: PartsOp, dtype: torch.dtype, warps: int) -> PartsConfig:
    """Parts of 512 bytes for each warp."""
    return PartsConfig(512 * warps // dtype.itemsize, 4, warps, 4, op.first.LAG)


def emulate(op: PartsOp, call: RowCall, *tensors: torch.Tensor, seed: int, warps: int = 1) -> float:
    """Programs take turns at random, and none may wait for long. 0 if the words are zero again."""
    config = small(op, tensors[0].dtype, warps)
    words = op.words(config, call, CPU)
    options = LaunchOptions(lane_order="random", seed=seed % 2**31, max_backward_branches=20_000)
    emulated.run(op, config, call, (*tensors, words), options)
    return float("inf") if words.any() else 0.0


def softmax_off(
    op: PartsOp, columns: int, log: bool, seed: int, dtype: torch.dtype, warps: int = 1
) -> float:
    x = ordinary((ROWS, columns), dtype, seed) * 5
    x[1] += torch.linspace(-30, 30, columns).to(dtype)  # each part has another maximum
    x[2, 3:] = -float("inf")
    x[3] = -float("inf")
    x[4, 100] = float("nan")
    x[5] += 300  # whose exponential is no number
    out = torch.full_like(x, 7.0)
    call = row_call(ROWS, columns, (x, out), (x, out), LOG=log, ONLINE=True)
    return max(emulate(op, call, x, out, seed=seed, warps=warps), softmax_excess(out, x, log))


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
) -> float:
    """The worst of the output and the statistics."""
    x = ordinary((ROWS, columns), dtype, seed) + 3
    x[1] += torch.linspace(-30, 30, columns).to(dtype)  # each part has another mean
    weight, bias = (ordinary((columns,), of_vectors or dtype, seed + i) for i in (1, 2))
    out = torch.full_like(x, 7.0)
    mean, rstd = (torch.full((ROWS,), 7.0) for _ in range(2))
    tensors = (x, x, weight, bias, out, x, mean, rstd)
    call = row_call(
        ROWS, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=layer, RESIDUAL=False,
        WEIGHT=True, BIAS=layer, STATISTICS=True,
    )  # fmt: skip
    left = emulate(op, call, *tensors, seed=seed, warps=warps)
    wide, w, b = x.double(), weight.double(), bias.double()
    m = wide.mean(-1, keepdim=True) * layer
    r = ((wide - m).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    hat = (wide - m) * r
    # An element of the mean is rounded in proportion to the sum of sizes.
    size = (hat.abs() + wide.abs().mean(-1, keepdim=True) * r) * w.abs()
    off = excess(out, hat * w + b * layer, size + b.abs() * layer)
    statistics = [(rstd, r[:, 0])] + ([(mean, m[:, 0])] if layer else [])
    return max(left, off, *(excess(got, exact, 8 * exact.abs()) for got, exact in statistics))


@each_length
@pytest.mark.parametrize("op", [LAYER_NORM, RMS_NORM], ids=["layer", "rms"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_norms(dtype: torch.dtype, op: PartsOp, columns: int, seed: int) -> None:
    assert norm_off(op, columns, op is LAYER_NORM, seed, dtype) <= 4


def test_several_warps(seed: int) -> None:
    """And with a weight of fp32, whose places are swizzled."""
    for op in (LAYER_NORM, RMS_NORM):
        for kind in (torch.bfloat16, torch.float32):
            assert norm_off(op, 1208, op is LAYER_NORM, seed, torch.bfloat16, 2, kind) <= 4
    assert softmax_off(SOFTMAX, 1208, False, seed, torch.bfloat16, warps=2) <= 4


BUGS: list[tuple[PartsOp, ModuleType, str, str]] = [
    (SOFTMAX, softmax, "ring.arrived(load, ring.SLOTS - 1)", "ring.arrived(load, ring.SLOTS)"),
    (SOFTMAX, softmax, "ring.fill(load + ring.SLOTS)", "ring.fill(load + ring.SLOTS + 1)"),
    (SOFTMAX, softmax, 'v = gl.where(ring.column() < ring.columns, v, -float("inf"))', "pass"),
    (SOFTMAX, softmax, "exp(top - highest)", "exp(top - top)"),
    (SOFTMAX, softmax, "exp(wide - finite(top)", "exp(wide - (top)"),
    (SOFTMAX, softmax, "exchange.leave()", "pass"),
    (SOFTMAX, softmax, "gl.fma(their, exp(each - highest), 0.0)", "their"),
    (RMS_NORM, norms, "ring.SLOTS - 1 - LAG", "ring.SLOTS - LAG"),
    (RMS_NORM, norms, "ring.fill(past + SLOTS)", "ring.fill(turn + SLOTS)"),
    (LAYER_NORM, norms, "gl.where(ring.column() < ring.columns, away, 0.0)", "away"),
    (LAYER_NORM, norms, "squares += gl.sum(gl.fma(gl.fma(away, away, 0.0), n, 0.0), 0)", "pass"),
    (LAYER_NORM, norms, "gl.minimum(ring.columns - ring.first, ring.BLOCK)", "ring.columns"),
    (LAYER_NORM, norms, "wait_group(0)", "pass"),
    (LAYER_NORM, norms, "if exchange.part == 0:", "if exchange.part >= 0:"),
]  # fmt: skip


OF_EXCHANGE = [
    ("ROUNDS = gl.constexpr(8)", "ROUNDS = gl.constexpr(2)"),
    (" & (second >> 32 == turn + 1)", ""),
    ("(first >> 32 == turn + 1) & ", ""),
    ("+ self.part\n", "\n"),
    ("volatile=True", "volatile=False"),
    ("+ 1 == self.parts", "== 0"),
    ("range(2 * ROUNDS)", "range(2 * ROUNDS - 1)"),
]


@pytest.mark.parametrize(("old", "new"), OF_EXCHANGE, ids=[old[:40] for old, _ in OF_EXCHANGE])
def test_bugs_of_the_exchange_are_found(old: str, new: str, seed: int) -> None:
    """In one of some orders in which the programs take turns: not each shows every bug."""
    bad = planted(LAYER_NORM, norms, old, new, inside=exchange)

    def right(order: int) -> bool:
        return norm_off(bad, 1208, True, order, torch.bfloat16, warps=2) <= 4

    assert any(found(partial(right, seed + i)) for i in range(ORDERS))


@pytest.mark.parametrize(
    ("op", "module", "old", "new"), BUGS, ids=[old[:40] for _, _, old, _ in BUGS]
)
def test_planted_bugs_are_found(
    op: PartsOp, module: ModuleType, old: str, new: str, seed: int
) -> None:
    bad = planted(op, module, old, new)
    if op is SOFTMAX:
        assert found(lambda: softmax_off(bad, 616, False, seed, torch.bfloat16) <= 4)
    else:
        is_layer = op is LAYER_NORM
        assert found(lambda: norm_off(bad, 1208, is_layer, seed, torch.bfloat16, warps=2) <= 4)


def calls(columns: int, dtype: torch.dtype) -> list[tuple[PartsOp, RowCall]]:
    x, w, one = (torch.empty(n, dtype=dtype) for n in ((2, columns), columns, 2))
    norm: dict[str, Any] = {"RESIDUAL": False, "WEIGHT": True, "STATISTICS": False}
    tensors = (x, x, w, w, x, x, one.float(), one.float())
    return [
        *((SOFTMAX, row_call(2, columns, (x, x), (x, x), LOG=log, ONLINE=True))
          for log in (False, True)),
        *((op, row_call(2, columns, tensors, (x, x, x), numbers=(1e-5,), LAYER=layer, BIAS=layer,
                        **norm)) for op, layer in ((LAYER_NORM, True), (RMS_NORM, False))),
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [40_008, 65_536, 262_144])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_no_spills_and_several_programs_at_a_time(dtype: torch.dtype, columns: int) -> None:
    for op, call in calls(columns, dtype):
        config = op.default(call)
        compiled = compile_op(op, config, call)
        assert compiled.spill_bytes == 0 and config.programs * config.num_warps >= 12
        each = compiled.registers * 32 * config.num_warps, compiled.shared_bytes + 1024
        assert config.programs * each[0] <= 65_536 and config.programs * each[1] <= 228 * 1024
        assert re.search(r"cp\.async\.cg\.shared\.global .*, 0x10", compiled.ptx)


def test_refused() -> None:
    (op, call), _, (norm, residual), _ = calls(1024, torch.bfloat16)
    for config, reason in (
        (PartsConfig(512, 3, 3, 1), "num_warps 3: allowed are powers of two"),
        (PartsConfig(384, 3, 1, 1), "BLOCK 384: allowed are 256, 512, 1024 with 32 threads"),
        (PartsConfig(256, 4, 1, 4, 2), "LAG 2: allowed are 1 to 1"),
        (PartsConfig(256, 2, 1, 4), "SLOTS 2: at least LAG + 2"),
        (PartsConfig(4096, 4, 16, 3), "programs 3: allowed are 1 to 2"),
        (PartsConfig(8192, 15, 8, 1), "245888 bytes of shared memory: at most 232448"),
        (PartsConfig(8192, 8, 8, 2), "131200 bytes of shared memory: too many for 2 programs"),
    ):
        assert reason in "; ".join(op.problems(config, call))
    added = replace(residual, switches=(*residual.switches, ("RESIDUAL", True)))
    assert norm.problems(small(norm, torch.bfloat16, 1), added) == [
        "RESIDUAL: the kernel adds none"
    ]
    odd = replace(call, align=4)
    assert op.problems(PartsConfig(256, 4, 1), odd) == [
        "rows do not begin at multiples of 16 bytes"
    ]
    assert not op.space(odd, 90) and not op.fits(odd, CPU)


def test_by_configuration(seed: int) -> None:
    """Through the operators."""
    x = ordinary((5, 1000), torch.float16, seed)
    exact = x.double()
    config = PartsConfig(256, 4, 1)
    got = operators.softmax(x, config=config)
    assert excess(got, exact.softmax(-1), exact.softmax(-1)) <= 4
    r = (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(x, config=config), exact * r, (exact * r).abs()) <= 4
    with pytest.raises(ValueError, match="RESIDUAL: the kernel adds none"):
        operators.rms_norm(x, residual=x, config=config)
    with pytest.raises(ValueError, match="BLOCK 500: allowed are 256, 512, 1024"):
        operators.log_softmax(x, config=PartsConfig(500, 4, 1))
    with pytest.raises(ValueError, match="rows of 16 parts: 12 programs can run at a time"):
        operators.softmax(ordinary((5, 4096), torch.float16, seed), config=config)


def test_the_default_of_long_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only of those that it can take, and is faster for."""
    ran: list[str] = []
    kernel_for = PartsOp.kernel_for

    def noted(self: PartsOp, config: PartsConfig, call: RowCall) -> object:
        ran.append(self.name)
        return kernel_for(self, config, call)

    monkeypatch.setattr(PartsOp, "kernel_for", noted)
    x = ordinary((2, 41_000), torch.bfloat16, seed)
    assert softmax_excess(operators.softmax(x), x, False) <= 4 and ran
    for name in ("layer_norm", "rms_norm"):
        ran.clear()
        assert getattr(operators, name)(x).isfinite().all() and ran == ["norms.parts.forward"]
    ran.clear()
    for short in (x[:, :24_576], x[:, :40_001], x.float()[:, :24_568]):
        operators.softmax(short), operators.layer_norm(short)
    operators.softmax(x, algorithm="two_pass"), operators.rms_norm(x[:, :40_960])
    operators.layer_norm(x, residual=x)
    assert not ran
