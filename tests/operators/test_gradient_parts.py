"""Gradients of norms of long rows, whose parts are in different programs, in the emulator, races
on, against fp64."""

from __future__ import annotations

from functools import partial

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.norms import gradient_parts as kernels
from flash_attention.operators.norms.gradient_op import GradientConfig, GradientOp
from flash_attention.operators.norms.launches import IN_PARTS
from flash_attention.operators.rows import exchange
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op
from flash_helpers.emulator import LaunchOptions

from .compare import excess
from .planting import found, planted
from .values import ordinary

CPU = torch.device("cpu")
ORDERS = 10
# More turns than there are places, fewer, one; three parts, of which the last is not whole.
SIZES = [(29, 616), (5, 512), (9, 248)]


def off(
    op: GradientOp,
    shape: tuple[int, int],
    layer: bool,
    seed: int,
    dtype: torch.dtype = torch.bfloat16,
    of_weight: torch.dtype = torch.bfloat16,
    added: bool = False,
    warps: int = 1,
    lag: int = 1,
) -> float:
    """The worst of the three gradients; infinite if the words are not zero again, or if a number
    beyond the rows was written."""
    rows, columns = shape
    x, dy, past = (ordinary(shape, dtype, seed + i) for i in range(3))
    x[1] += torch.linspace(-9, 9, columns).to(dtype)
    weight = ordinary((columns,), of_weight, seed + 3)
    wide, w64 = x.double(), weight.double()
    mean = wide.mean(-1).float() if layer else torch.zeros(rows)
    away = wide - mean.double()[:, None]
    rstd = (away.square().mean(-1) + 1e-5).rsqrt().float()
    # Whose parts have two zeros to tell, one of them -0.0.
    dy[2] = torch.copysign(torch.zeros(columns), -away[2] * weight).to(dtype)
    g64 = dy.double()
    config = GradientConfig(256 * warps * 2 // dtype.itemsize, lag + 2, warps, 4, lag)
    call = row_call(
        rows, columns, (dy, x, past, weight, mean, rstd, x, mean, mean), (dy, x, past, x),
        LAYER=layer, ADDED=added, WEIGHT=True, BIAS=layer,
    )  # fmt: skip
    groups = op.groups(config, call, 3)
    dx = torch.full((rows + 1, columns), 7.0, dtype=dtype)
    dw, db = (torch.full((groups + 1, columns), 7.0) for _ in range(2))
    words = op.words(config, call, CPU)
    options = LaunchOptions(lane_order="random", seed=seed % 2**31, max_backward_branches=20_000)
    tensors = (dy, x, past, weight, mean, rstd, dx, dw, db, words)
    emulated.run(op, config, call, tensors, options)
    beyond = [(t[-1] == 7).all() for t in (dx, dw, db)]
    if words.any() or not all(beyond):
        return float("inf")
    hat, g = away * rstd.double()[:, None], g64 * w64
    slope = g - hat * (g * hat).mean(-1, keepdim=True) - g.mean(-1, keepdim=True) * layer
    exact = slope * rstd.double()[:, None] + past.double() * added
    sums = [(dw, g64 * hat)] + ([(db, g64)] if layer else [])
    return max(
        excess(dx[:-1], exact, 4 * exact.abs().amax(-1, keepdim=True) + past.abs() * added),
        *(excess(t[:-1].sum(0), s.sum(0), 4 * s.abs().sum(0)) for t, s in sums),
    )


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("layer", [False, True], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_gradients(shape: tuple[int, int], layer: bool, dtype: torch.dtype, seed: int) -> None:
    for lag in (1, 2):
        assert off(IN_PARTS, shape, layer, seed, dtype, lag=lag) <= 4


@pytest.mark.parametrize("layer", [False, True], ids=["rms", "layer"])
def test_with_a_residual_weights_of_fp32_and_several_warps(layer: bool, seed: int) -> None:
    given = torch.bfloat16, torch.float32
    assert off(IN_PARTS, (29, 616), layer, seed, *given, added=True) <= 4
    assert off(IN_PARTS, (29, 1208), layer, seed, *given, warps=2) <= 4


BUGS = [
    ("wait_group(SLOTS - 1 - LAG)", "wait_group(SLOTS - LAG)"),
    ("past + SLOTS * groups", "past + (SLOTS + 1) * groups"),
    ("(turn - LAG) % SLOTS", "turn % SLOTS"),
    ("past_m, past_r = next_m, next_r", "pass"),
    ("if turn > 2 * LAG:", "if turn > 2 * LAG + 1:"),
    ("row + groups, rows, LAYER", "row + 1, rows, LAYER"),
    ("gl.sum(each_gh, 0)", "gl.max(each_gh, 0)"),
    ("mean_gh\n", "mean_gh * 1.01\n"),
    ("y -= gl.sum", "y += gl.sum"),
    ("y * r\n", "y\n"),
    ("static_range(1, LAG + 2)", "static_range(1, LAG + 1)"),
    ("dw + group.to(gl.int64) * columns", "dw + (group + 1).to(gl.int64) * columns"),
    ("part_b += grads", "part_b = grads"),
    ("wait_group(0)", "pass"),
]


@pytest.mark.parametrize(("old", "new"), BUGS, ids=[old[:40] for old, _ in BUGS])
def test_planted_bugs_are_found(old: str, new: str, seed: int) -> None:
    bad = planted(IN_PARTS, kernels, old, new)

    def right(shape: tuple[int, int]) -> bool:
        return off(bad, shape, True, seed) <= 4

    assert any(found(partial(right, shape)) for shape in ((29, 616), (4, 616)))


OF_EXCHANGE = [
    ("while self.are_missing(word):", "if self.are_missing(word):"),
    ("0.0, second)\n", "second, second)\n"),
    ("before + 1 == self.parts", "before == 0"),
]


@pytest.mark.parametrize(("old", "new"), OF_EXCHANGE, ids=[old[:40] for old, _ in OF_EXCHANGE])
def test_bugs_of_the_exchange_are_found(old: str, new: str, seed: int) -> None:
    """In one of some orders in which the programs take turns."""
    bad = planted(IN_PARTS, kernels, old, new, exchange)

    def right(order: int) -> bool:
        return off(bad, (29, 1208), True, order, warps=2) <= 4

    assert any(found(partial(right, seed + i)) for i in range(ORDERS))


def call_of(columns: int, dtype: torch.dtype, bias: bool) -> RowCall:
    x, w, one = (torch.empty(n, dtype=dtype) for n in ((2, columns), columns, 2))
    one = one.float()
    return row_call(
        2, columns, (x, x, x, w, one, one, x, one, one), (x, x, x, x), LAYER=bias, ADDED=True,
        WEIGHT=True, BIAS=bias,
    )  # fmt: skip


def test_parts_are_larger_where_there_would_be_many() -> None:
    for dtype, slots in ((torch.bfloat16, (4, 4, 5)), (torch.float32, (3, 3, 3))):
        found = [
            IN_PARTS.default(call_of(n, dtype, False))
            for n in (32_768, 32_776, 131_072, 131_080, 2**20)
        ]
        assert [config.BLOCK for config in found] == [1024, 2048, 2048, 4096, 4096]
        assert slots == (found[0].SLOTS, found[1].SLOTS, found[3].SLOTS)


@pytest.mark.parametrize(
    ("dtype", "columns"),
    [
        (torch.bfloat16, 40_008),
        (torch.float32, 65_536),
        pytest.param(torch.bfloat16, 65_536, marks=pytest.mark.slow),
        pytest.param(torch.float32, 40_008, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_no_spills_and_several_programs_at_a_time(dtype: torch.dtype, columns: int) -> None:
    for bias in (False, True):
        call = call_of(columns, dtype, bias)
        for config in IN_PARTS.space(call, 90):
            compiled = compile_op(IN_PARTS, config, call)
            assert compiled.spill_bytes == 0
            registers = compiled.registers * 32 * config.num_warps
            assert config.programs * registers <= 65_536
            assert config.programs * (compiled.shared_bytes + 1024) <= 228 * 1024


def test_refused() -> None:
    call = call_of(1024, torch.bfloat16, True)
    for config, reason in (
        (GradientConfig(512, 3, 3, 1), "num_warps 3: allowed are powers of two up to 32"),
        (GradientConfig(384, 3, 1, 1), "BLOCK 384: allowed are 256, 512 with 32 threads"),
        (GradientConfig(256, 2, 1, 1), "SLOTS 2: at least LAG + 2"),
        (GradientConfig(256, 4, 1, 1, 0), "LAG 0: at least 1"),
        (GradientConfig(4096, 6, 8, 3), "programs 3: 2 have room"),
        (GradientConfig(4096, 16, 8, 1), "programs 1: 0 have room"),
    ):
        assert reason in "; ".join(IN_PARTS.problems(config, call))


def test_rows_that_need_more_programs_than_run_at_a_time() -> None:
    """On the small GPU that the emulator stands for: 3 multiprocessors."""
    call = call_of(8192, torch.bfloat16, True)
    few = GradientConfig(1024, 4, 2, 2)
    reason = "rows of 8 parts: 6 programs can run at a time"
    assert IN_PARTS.problem_of(few, call, CPU) == reason
    assert IN_PARTS.problem_of(IN_PARTS.default(call), call, CPU) is None


def test_the_default_of_long_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[GradientConfig] = []
    kernel_for = GradientOp.kernel_for

    def noted(self: GradientOp, config: GradientConfig, call: RowCall) -> object:
        ran.append(config)
        return kernel_for(self, config, call)

    monkeypatch.setattr(GradientOp, "kernel_for", noted)
    for name, short, long in (("layer_norm", 8192, 8200), ("rms_norm", 16_384, 16_392)):
        for columns in (short, long):
            x = ordinary((3, columns), torch.bfloat16, seed).requires_grad_()
            vectors = [torch.ones(columns, dtype=x.dtype).requires_grad_() for _ in range(2)]
            given = vectors if name == "layer_norm" else vectors[:1]
            getattr(operators, name)(x, *given).sum().backward()
            assert bool(ran) is (columns == long)
        ran.clear()
