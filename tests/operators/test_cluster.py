"""Rows that the programs of a cluster share, in the emulator, races on, against fp64; which rows
these are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.operators.norms import cluster as norms
from flash_attention.operators.norms.launches import CLUSTER as LAYER_NORM
from flash_attention.operators.norms.launches import CLUSTER_RMS as RMS_NORM
from flash_attention.operators.row_softmax import cluster as softmax
from flash_attention.operators.row_softmax.calls import CLUSTER as SOFTMAX
from flash_attention.operators.rows import cluster, cluster_text
from flash_attention.operators.rows.cluster_op import ClusterConfig, ClusterOp
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.triton_kit import emulated
from flash_helpers.emulator import LaunchOptions

from .compare import norm_excess, softmax_excess
from .planting import found, planted
from .values import ordinary, rows_of_extremes, rows_off_centre

ROWS = 7
SMALL = ClusterConfig(512, 2)
PAIRS = replace(SMALL, ROWS=2)  # of seven rows the last one has itself beside it
PIECES = ClusterConfig(1024, 2, ROWS=2, PIECES=2, TOGETHER=True)
AHEAD, SHARED = replace(PIECES, AHEAD=True), replace(PIECES, SHARED=True)
# Of 1544 the last part's second warp has none.
each_length = pytest.mark.parametrize("columns", [1544, 2048, 2056])
# For tests of many configurations.
some_lengths = pytest.mark.parametrize(
    "columns", [1544, pytest.param(2048, marks=pytest.mark.slow), 2056]
)
each_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
each_norm = pytest.mark.parametrize("op", [RMS_NORM, LAYER_NORM], ids=["rms", "layer"])


def emulate(
    op: ClusterOp, call: RowCall, *tensors: torch.Tensor, seed: int, config: ClusterConfig = SMALL
) -> None:
    options = LaunchOptions(lane_order="random", seed=seed % 2**31)
    emulated.run(op, config, call, tensors, options)


def softmax_off(
    op: ClusterOp, columns: int, log: bool, seed: int, dtype: torch.dtype = torch.bfloat16,
    config: ClusterConfig = SMALL,
) -> float:  # fmt: skip
    x = rows_of_extremes(ROWS, columns, dtype, seed)
    x[0, 512:768] += 200  # the second of two pieces
    out = torch.full_like(x, 7.0)
    call = row_call(ROWS, columns, (x, out), (x, out), LOG=log, ONLINE=True)
    emulate(op, call, x, out, seed=seed, config=config)
    return softmax_excess(out, x, log)


@each_length
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@each_dtype
def test_softmax(dtype: torch.dtype, log: bool, columns: int, seed: int) -> None:
    assert softmax_off(SOFTMAX, columns, log, seed, dtype) <= 4


def norm_off(
    op: ClusterOp, columns: int, seed: int, dtype: torch.dtype = torch.bfloat16,
    of_vectors: torch.dtype | None = None, statistics: bool = True, weighted: bool = True,
    config: ClusterConfig = SMALL,
) -> float:  # fmt: skip
    """The worst of the output and the statistics."""
    layer = op.plain is LAYER_NORM.plain
    x = rows_off_centre(ROWS, columns, dtype, seed)
    weight, bias = (ordinary((columns,), of_vectors or dtype, seed + i) for i in (1, 2))
    out, mean, rstd = torch.full_like(x, 7.0), *(torch.full((ROWS,), 7.0) for _ in range(2))
    tensors = (x, x, weight, bias, out, x, mean, rstd)
    call = row_call(
        ROWS, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=layer, RESIDUAL=False,
        WEIGHT=weighted, BIAS=layer and weighted, STATISTICS=statistics,
    )  # fmt: skip
    emulate(op, call, *tensors, seed=seed, config=config)
    if not weighted:
        weight, bias = torch.ones(columns), torch.zeros(columns)
    if not statistics:
        assert (rstd == 7).all() and (mean == 7).all()
        return norm_excess(out, x, weight, bias, layer, mean, None)
    return norm_excess(out, x, weight, bias, layer, mean, rstd)


@each_length
@each_dtype
@each_norm
def test_norms(op: ClusterOp, dtype: torch.dtype, columns: int, seed: int) -> None:
    assert norm_off(op, columns, seed, dtype) <= 4


@each_norm
def test_norms_with_other_weights(op: ClusterOp, seed: int) -> None:
    for config in (SMALL, PIECES, AHEAD, SHARED):
        off = norm_off(
            op, 1544, seed, of_vectors=torch.float32, statistics=False, config=config
        )  # fmt: skip
        assert off <= 4
        assert norm_off(op, 1544, seed, weighted=False, config=config) <= 4


@some_lengths
@each_dtype
def test_pairs_and_pieces(dtype: torch.dtype, columns: int, seed: int) -> None:
    for config in (PAIRS, PIECES, replace(PAIRS, TOGETHER=True)):
        assert softmax_off(SOFTMAX, columns, False, seed, dtype, config=config) <= 4
        for op in (RMS_NORM, LAYER_NORM):
            assert norm_off(op, columns, seed, dtype, config=config) <= 4


BUGS: list[tuple[ClusterOp, ModuleType, str, str]] = [
    (SOFTMAX, softmax, 'share.once(x, x_row, -float("inf")', "share.once(x, x_row, 0.0"),
    (SOFTMAX, softmax, "binary(finite(top))", "binary(top)"),
    (SOFTMAX, softmax, "binary(finite(high))[:, :", "binary(high)[:, :"),
    (SOFTMAX, softmax, "exp2(binary(top) - less)", "exp2(binary(top) - binary(top))"),
    (SOFTMAX, softmax, "binary(tops) - highest[:, None]", "binary(tops) - binary(tops)"),
    (SOFTMAX, softmax, "gl.fma(top, LOG2_E, 0.0)", "top + 0.0"),
    (SOFTMAX, softmax, '"0fFF800000"', '"0f00000000"'),
    (RMS_NORM, norms, "/ share.whole.to", "/ share.BLOCK + 0 * share.whole.to"),
    (RMS_NORM, norms, "(share.shared(weight, 0)", "(share.shared(weight - share.first, 0)"),
    (RMS_NORM, norms, "gl.store(rstd + index", "gl.store(rstd + 0 * index"),
    (RMS_NORM, norms, "told = among(squares, gl.sum(squares, 2))", "told = squares"),
    (LAYER_NORM, norms, "gl.store(mean + index", "gl.store(mean + 0 * index"),
    (LAYER_NORM, norms, "among(total, m)", "total"),
    (LAYER_NORM, norms, "among(total, gl.sum(squares, 2))", "squares"),
    (LAYER_NORM, norms, "gl.maximum(share.of_warp(share.part, warp), 1.0)",
     "share.of_warp(share.part, warp)"),
    (LAYER_NORM, norms, "share.of_warp(share.part, warp), 1.0)", "0.0 * warp, 128.0)"),
    (LAYER_NORM, norms, "away = share.known(away, 0.0, piece)", "pass"),
    (LAYER_NORM, norms, "squares + gl.fma(gl.fma(away, away, 0.0), n, 0.0)", "squares"),
    (LAYER_NORM, norms, "gl.sum(gl.fma(means, n, 0.0), 1)", "gl.sum(means * 128, 1)"),
    (LAYER_NORM, norms, "share.of_each(first)", "share.of_each(first) * 0 + 128"),
    (LAYER_NORM, norms, "(y - share.in_threads(m)", "(y - 0 * share.in_threads(m)"),
    (LAYER_NORM, norms, "(share.shared(bias, 0)", "(share.shared(bias - share.first, 0)"),
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
    ("_, [full], {8 * words};", "_, [full], {8 * words - 8};"),
    ("_, [full], {8 * words};", "_, [full], {8 * words + 8};"),
    ("WORDS: gl.constexpr = self.ROWS * words_of", "WORDS: gl.constexpr = words_of"),
    ("setp.lt.u32 to, $1, {parts};", "setp.lt.u32 to, $1, {parts - 1};"),
    ("@to mapa.shared::cluster.u32 word, word, $1;", ""),
    ("@to mapa.shared::cluster.u32 full, full, $1;", ""),
    ("flash_words[{16 * words}]", "flash_words[{8 * words}]"),
    ("mad.lo.s32 word, $2, 16, word;\n        mov.u32 full", "mov.u32 full"),
    ("mad.lo.s32 word, $3, 16, word;", ""),
    ("(row * self.PARTS + self.part) * gl.num_warps()", "row * self.PARTS * gl.num_warps()"),
    ("(row * self.PARTS + self.part) * gl.num_warps()", "self.part * gl.num_warps()"),
    ("row * WORDS + word", "row * 0 + word"),
    ("first=part * length", "first=part * 0"),
    ("return self.vector(piece) < self.columns", "return self.vector(piece) >= 0"),
    ("gl.minimum(length, columns - part * length)", "length"),
    ("gl.program_id(0) // self.PARTS", "gl.program_id(0) * 0"),
    ("self.index() * stride", "self.index() * 0"),
    ("to(gl.int64) * self.ROWS", "to(gl.int64)"),
    ("row += gl.arange(0, self.ROWS, layout)", "row += 0 * gl.arange(0, self.ROWS, layout)"),
    ("gl.minimum(row, self.rows.to(gl.int64) - 1)", "row"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "module", "old", "new"), BUGS, ids=[old[:40] for _, _, old, _ in BUGS]
)
def test_planted_bugs_are_found(
    op: ClusterOp, module: ModuleType, old: str, new: str, seed: int
) -> None:
    bad = planted(op, module, old, new)
    if op is SOFTMAX:
        assert found(lambda: softmax_off(bad, 1128, False, seed, config=PAIRS) <= 4)
    else:
        assert found(lambda: norm_off(bad, 1544, seed, config=PAIRS) <= 4)


def way_to(module: ModuleType) -> tuple[ModuleType, ...]:
    """By which the kernels import it."""
    return {norms: (), cluster: (cluster,), cluster_text: (cluster, cluster_text)}[module]


@pytest.mark.parametrize(("old", "new"), OF_CLUSTERS, ids=[old[:50] for old, _ in OF_CLUSTERS])
def test_bugs_of_clusters_are_found(old: str, new: str, seed: int) -> None:
    assert cluster.__file__ is not None
    here = old in Path(cluster.__file__).read_text()
    bad = planted(SOFTMAX, softmax, old, new, *way_to(cluster if here else cluster_text))
    assert found(lambda: softmax_off(bad, 1544, False, seed, config=PAIRS) <= 4)
