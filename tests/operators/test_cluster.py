"""Rows that the programs of a cluster share, in the emulator, races on, against fp64; which rows
these are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.norms import cluster as norms
from flash_attention.operators.norms.launches import CLUSTER_RMS as RMS_NORM
from flash_attention.operators.row_softmax import cluster as softmax
from flash_attention.operators.row_softmax.calls import CLUSTER as SOFTMAX
from flash_attention.operators.rows import cluster
from flash_attention.operators.rows.cluster_op import ClusterConfig, ClusterOp
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op
from flash_helpers.emulator import LaunchOptions

from .compare import excess, softmax_excess
from .planting import found, planted
from .values import ordinary, rows_of_extremes, rows_off_centre

ROWS = 7
SMALL = ClusterConfig(512, 2)
each_length = pytest.mark.parametrize("columns", [1128, 2048, 2056])
each_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)


def emulate(op: ClusterOp, call: RowCall, *tensors: torch.Tensor, seed: int) -> None:
    options = LaunchOptions(lane_order="random", seed=seed % 2**31)
    emulated.run(op, SMALL, call, tensors, options)


def softmax_off(
    op: ClusterOp, columns: int, log: bool, seed: int, dtype: torch.dtype = torch.bfloat16
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
    op: ClusterOp, columns: int, seed: int, dtype: torch.dtype = torch.bfloat16,
    of_vectors: torch.dtype | None = None, statistics: bool = True, weighted: bool = True,
) -> float:  # fmt: skip
    """The worst of the output and the deviations."""
    x = rows_off_centre(ROWS, columns, dtype, seed)
    weight = ordinary((columns,), of_vectors or dtype, seed + 1)
    out, rstd = torch.full_like(x, 7.0), torch.full((ROWS,), 7.0)
    tensors = (x, x, weight, rstd, out, x, rstd, rstd)
    call = row_call(
        ROWS, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=False, RESIDUAL=False,
        WEIGHT=weighted, BIAS=False, STATISTICS=statistics,
    )  # fmt: skip
    emulate(op, call, *tensors, seed=seed)
    wide, w = x.double(), weight.double() if weighted else torch.ones(columns).double()
    r = (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    exact = wide * r * w
    off = excess(out, exact, exact.abs())
    if statistics:
        return max(off, excess(rstd, r[:, 0], 8 * r[:, 0]))
    assert (rstd == 7).all()
    return off


@each_length
@each_dtype
def test_rms_norm(dtype: torch.dtype, columns: int, seed: int) -> None:
    assert norm_off(RMS_NORM, columns, seed, dtype) <= 4


def test_rms_norm_with_other_weights(seed: int) -> None:
    assert norm_off(RMS_NORM, 1128, seed, of_vectors=torch.float32, statistics=False) <= 4
    assert norm_off(RMS_NORM, 1128, seed, weighted=False) <= 4


BUGS: list[tuple[ClusterOp, ModuleType, str, str]] = [
    (SOFTMAX, softmax, 'share.once(x, x_row, -float("inf"))', "share.once(x, x_row, 0.0)"),
    (SOFTMAX, softmax, "finite(top)[None", "(top)[None"),
    (SOFTMAX, softmax, "finite(high)[:", "(high)[:"),
    (SOFTMAX, softmax, "exp(top - highest)", "exp(top - top)"),
    (SOFTMAX, softmax, "exp(tops - highest)", "exp(tops - tops)"),
    (SOFTMAX, softmax, '"0fFF800000"', '"0f00000000"'),
    (RMS_NORM, norms, "/ columns.to", "/ BLOCK + 0 * columns.to"),
    (RMS_NORM, norms, "share.shared(weight)", "share.shared(weight - share.first)"),
    (RMS_NORM, norms, "gl.store(rstd + share.index, r)", "pass"),
    (RMS_NORM, norms, "among(squares, gl.sum(squares, 1))", "squares"),
]  # fmt: skip

# Each of the synchronisations left out, and what says how long and where parts are.
OF_CLUSTERS = [
    ("@!there bra FLASH_WAIT;", ""),
    ("mbarrier.try_wait.parity.shared::cta.b64 there, [full], 0;\n        @!there bra FLASH_WAIT;",
     ""),
    ("barrier.cluster.wait.acquire.aligned;", ""),
    ("barrier.cluster.arrive.relaxed.aligned;", ""),
    ("@first fence.mbarrier_init.release.cluster;", ""),
    ("@first mbarrier.init.shared::cta.b64 [full], 1;", ""),
    ("[full], 1;", "[full], 2;"),
    ("_, [full], {8 * parts * warps};", "_, [full], {8 * parts * warps - 8};"),
    ("_, [full], {8 * parts * warps};", "_, [full], {8 * parts * warps + 8};"),
    ("setp.lt.s32 to, $1, {parts};", "setp.lt.s32 to, $1, {parts - 1};"),
    ("@to mapa.shared::cluster.u32 word, word, $1;", ""),
    ("@to mapa.shared::cluster.u32 full, full, $1;", ""),
    ("flash_words[{16 * parts * warps}]", "flash_words[{8 * parts * warps}]"),
    ("mad.lo.s32 word, $2, 16, word;\n        mov.u32 full", "mov.u32 full"),
    ("mad.lo.s32 word, $2, 16, word;\n        mov.b32 $0", "mov.b32 $0"),
    ("self.part * gl.num_warps() + warp", "warp"),
    ("first=part * length", "first=part * 0"),
    ("return self.vector() < self.columns", "return self.vector() >= 0"),
    ("gl.minimum(length, columns - part * length)", "length"),
    ("gl.program_id(0) // PARTS", "gl.program_id(0) * 0"),
    ("self.index * stride", "0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "module", "old", "new"), BUGS, ids=[old[:40] for _, _, old, _ in BUGS]
)
def test_planted_bugs_are_found(
    op: ClusterOp, module: ModuleType, old: str, new: str, seed: int
) -> None:
    bad = planted(op, module, old, new)
    if op is SOFTMAX:
        assert found(lambda: softmax_off(bad, 1128, False, seed) <= 4)
    else:
        assert found(lambda: norm_off(bad, 1128, seed) <= 4)


@pytest.mark.parametrize(("old", "new"), OF_CLUSTERS, ids=[old[:50] for old, _ in OF_CLUSTERS])
def test_bugs_of_clusters_are_found(old: str, new: str, seed: int) -> None:
    bad = planted(SOFTMAX, softmax, old, new, cluster)
    assert found(lambda: softmax_off(bad, 1128, False, seed) <= 4)


def call_of(columns: int, dtype: torch.dtype, rows: int = 2048, **switches: bool) -> RowCall:
    x, w, one = (torch.empty(n, dtype=dtype) for n in ((2, columns), columns, 2))
    tensors = (x, x, w, w, x, x, one.float(), one.float())
    given: dict[str, Any] = {"RESIDUAL": False, "WEIGHT": True, "STATISTICS": True, **switches}
    return row_call(
        rows, columns, tensors, (x, x, x), numbers=(1e-5,), LAYER=False, BIAS=False, **given
    )


def softmax_call(columns: int, dtype: torch.dtype, rows: int = 2048) -> RowCall:
    x = torch.empty(2, columns, dtype=dtype)
    return row_call(rows, columns, (x, x), (x, x), LOG=False, ONLINE=True)


def blocks(op: ClusterOp, calls: list[RowCall]) -> list[int | None]:
    spaces = [op.space(call, 90) for call in calls]
    return [space[0].BLOCK if space else None for space in spaces]


def test_which_rows() -> None:
    """None where another kernel is faster."""
    half, single = torch.bfloat16, torch.float32
    lengths = (8192, 8200, 16_384, 16_392, 32_768, 32_776, 65_544, 131_072, 131_080, 262_152)
    for dtype in (half, single):
        many, few = ([softmax_call(n, dtype, rows) for n in lengths] for rows in (1024, 1023))
        long = [8192, 8192, 8192, 8192, 8192, 16_384, None]
        assert blocks(SOFTMAX, many) == [None, None, None, *long]
        assert blocks(SOFTMAX, few) == [None, 4096, 4096, *long]
    many, few = ([call_of(n, half, rows) for n in lengths] for rows in (1024, 1023))
    long = [4096, 4096, 8192, None, None, None, None]
    assert blocks(RMS_NORM, many) == [None, None, None, *long]
    assert blocks(RMS_NORM, few) == [None, 4096, 4096, *long]
    of_fp32 = [call_of(n, single) for n in (16_384, 16_388, 65_536, 65_540)]
    assert blocks(RMS_NORM, of_fp32) == [None, 4096, 4096, None]
    wide = [replace(call, layouts=of_fp32[0].layouts) for call in few]
    wide = [replace(call, layouts=(few[0].layouts[0], *call.layouts[1:])) for call in wide]
    assert blocks(RMS_NORM, wide) == [None, 4096, 4096, 4096, 4096, *[None] * 5]


@pytest.mark.parametrize("columns", [16_392, 32_768, 65_528, 131_072, 262_136])
@each_dtype
def test_loads_are_whole_vectors_and_registers_are_few(columns: int, dtype: torch.dtype) -> None:
    for op, call in ((SOFTMAX, softmax_call(columns, dtype)), (RMS_NORM, call_of(columns, dtype))):
        for config in op.space(call, 90):
            compiled = compile_op(op, config, call)
            assert compiled.registers <= config.registers
            assert compiled.spill_bytes <= 400
            loads = [line for line in compiled.ptx.splitlines() if "ld.global" in line]
            assert loads and all(".v4.b32" in line for line in loads)
            assert op.cluster(config, call) == -(-columns // config.BLOCK)


def test_refused() -> None:
    call = call_of(1128, torch.bfloat16)
    for config, reason in (
        (ClusterConfig(512, 3), "num_warps 3: allowed are powers of two up to 32"),
        (ClusterConfig(8192, 2), "BLOCK 8192: allowed are 512, 1024, 2048, 4096 with 64 threads"),
        (ClusterConfig(512, 2, 300), "registers 300: allowed are 24 to 255"),
    ):
        assert reason in "; ".join(RMS_NORM.problems(config, call))
    many = replace(call, columns=16 * 512 + 8)
    assert RMS_NORM.problems(SMALL, many) == ["BLOCK 512: 17 parts, and clusters of 16"]
    added = call_of(1128, torch.bfloat16, RESIDUAL=True)
    assert RMS_NORM.problems(SMALL, added) == ["RESIDUAL: the kernel adds none"]
    assert not SOFTMAX.space(replace(softmax_call(32_768, torch.bfloat16), align=4), 90)


def test_through_the_operators(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By configuration, and by default where they are faster: on no CPU."""
    x = ordinary((3, 1000), torch.float16, seed)
    exact = x.double()
    got = operators.softmax(x, config=SMALL)
    assert excess(got, exact.softmax(-1), exact.softmax(-1)) <= 4
    r = (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(x, config=SMALL), exact * r, (exact * r).abs()) <= 4
    with pytest.raises(ValueError, match="RESIDUAL: the kernel adds none"):
        operators.rms_norm(x, residual=x, config=SMALL)
    with pytest.raises(TypeError, match="layer_norm has no kernel for clusters"):
        operators.layer_norm(x, config=SMALL)
    long = ordinary((2, 20_480), torch.bfloat16, seed)
    call = softmax_call(20_480, long.dtype)
    assert SOFTMAX.space(call, 90) and not SOFTMAX.is_faster(call, long)
    ran: list[str] = []

    def noted(self: ClusterOp, call: RowCall, x: torch.Tensor) -> bool:
        ran.append(self.name)
        return bool(self.space(call, 90))

    monkeypatch.setattr(ClusterOp, "is_faster", noted)
    assert softmax_excess(operators.softmax(long), long, False) <= 4
    exact = long.double() * (long.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(long), exact, exact.abs() + 1) <= 4
    assert operators.layer_norm(long).isfinite().all()
    assert ran == ["row_softmax.cluster.forward", "norms.cluster.forward"]
