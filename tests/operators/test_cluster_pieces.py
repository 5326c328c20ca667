"""Rows that the programs of a cluster share, by pieces: weight and bias a piece ahead or in shared
memory, maxima of packed numbers, numbers told of whole programs. In the emulator, races on."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.operators.norms import cluster as norms
from flash_attention.operators.norms.launches import CLUSTER as LAYER_NORM
from flash_attention.operators.row_softmax import cluster as softmax
from flash_attention.operators.row_softmax.calls import CLUSTER as SOFTMAX
from flash_attention.operators.rows import cluster, cluster_text
from flash_attention.operators.rows.cluster_op import ClusterConfig, ClusterOp
from flash_attention.operators.rows.op import row_call

from .planting import found, planted
from .test_cluster import (
    AHEAD,
    PIECES,
    ROWS,
    SHARED,
    SMALL,
    each_dtype,
    each_norm,
    emulate,
    norm_off,
    softmax_off,
    some_lengths,
    way_to,
)
from .values import ordinary


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
def test_softmax_of_pieces(log: bool, seed: int) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert softmax_off(SOFTMAX, 1128, log, seed, dtype, config=PIECES) <= 4


@some_lengths
@each_dtype
@each_norm
def test_vectors_a_piece_ahead_or_in_shared_memory(
    op: ClusterOp, dtype: torch.dtype, columns: int, seed: int
) -> None:
    for config in (AHEAD, SHARED, replace(SMALL, SHARED=True)):
        assert norm_off(op, columns, seed, dtype, config=config) <= 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_squares_about_a_number_far_away(dtype: torch.dtype, seed: int) -> None:
    """SHARED: those of a warp, about one of its numbers, which may be any."""
    columns = 1544
    x = (ordinary((ROWS, columns), dtype, seed) + 100).to(dtype)
    x[0, 0], x[1, ::8], x[2, 8], x[3, :256], x[4] = 6e4, -3e3, -6e4, 5e4, 100
    weight, bias = (ordinary((columns,), dtype, seed + i) for i in (1, 2))
    out, mean, rstd = torch.full_like(x, 7.0), *(torch.full((ROWS,), 7.0) for _ in range(2))
    tensors = (x, x, weight, bias, out, x, mean, rstd)
    call = row_call(
        ROWS, columns, tensors, (x, x, out), numbers=(1e-5,), LAYER=True, RESIDUAL=False,
        WEIGHT=True, BIAS=True, STATISTICS=True,
    )  # fmt: skip
    emulate(LAYER_NORM, call, *tensors, seed=seed, config=SHARED)
    exact = x.double().var(-1, correction=0).add(1e-5).rsqrt()
    assert ((rstd - exact).abs() / exact).max() < 2.0**-14  # 1,024 roundings of fp32
    exact = torch.nn.functional.layer_norm(x.double(), (columns,), weight.double(), bias.double())
    of_mean = x.double().mean(-1, keepdim=True).abs() * rstd[:, None] * weight.double().abs()
    allowed = exact.abs().amax(-1, keepdim=True) * torch.finfo(dtype).eps + of_mean * 2.0**-22
    assert ((out.double() - exact).abs() < allowed).all()


OF_PIECES = [
    (norms, "share.once(x, x_row, 0.0, piece)", "share.once(x, x_row, 0.0, 0)"),
    (norms, "share.shared(weight, piece)", "share.shared(weight, 0)"),
    (norms, "share.shared(bias, piece)", "share.shared(bias, 0)"),
    (norms, "share.store(out, out_row, y, piece)", "share.store(out, out_row, y, 0)"),
    (norms, "share.known(away, 0.0, piece)", "share.known(away, 0.0, 0)"),
    (norms, "total += each_sum", "total += 0.0 * each_sum"),
    (norms, "squares += each_sum(away * away)", "squares = each_sum(away * away)"),
    (norms, "joined(means, squares, n, share.columns)", "joined(means, squares, n, share.whole)"),
    (cluster, "+ piece * TIMES", ""),
    (cluster, "gl.where(warp == row % gl.num_warps(), to, -1)", "to"),
    (cluster, "word = row * self.PARTS + self.part", "word = self.part + 0 * row"),
    (cluster, "self.of_part(word).to", "self.of_part(word * 0).to"),
    (cluster, "[row * WARPS + warp]", "[row * 0 + warp]"),
    (cluster, "[lane, row * WARPS + warp, one", "[lane, row * 0 + warp, one"),
    (cluster, "gl.maximum(self.whole - part * self.length, 0)", "self.whole + 0 * part"),
    (cluster_text, "bar.sync 0;", ""),
    (cluster_text, "@first st.shared.v2.b32 [word], {$3, $4};", ""),
    (cluster_text, "flash_own[{16 * own}]", "flash_own[{8 * own}]"),
]  # fmt: skip

OF_SOFTMAX = [
    ('share.once(x, x_row, -float("inf"), piece)', 'share.once(x, x_row, -float("inf"), 0)'),
    ("most = greater(most, raws[piece])", "most = greater(most, raws[0])"),
    ("most = greater(most, raws[piece])", "most = greater(most, raws[0])"),
    ("total += gl.sum", "total = gl.sum"),
    ("exp2(gl.fma(raws[piece].to", "exp2(gl.fma(raws[0].to"),
    ("es[piece] * scale", "es[0] * scale"),
    ("high = gl.max(highs, 1)", "high = gl.min(highs, 1)"),
    ("binary(highs) - binary(finite(high))[:, None]", "binary(highs) - binary(high)[:, None]"),
    ("gl.sum(gl.fma(all_its, its, 0.0), 1)", "gl.max(gl.fma(all_its, its, 0.0), 1)"),
    ("share.in_all(its, top)", "share.in_all(high, top)"),
    ("share.store(out, out_row, y, piece)", "share.store(out, out_row, y, 0)"),
]

OF_VECTORS = [
    (AHEAD, norms, "share.shared(weight, piece + 1)", "share.shared(weight, piece)"),
    (AHEAD, norms, "share.shared(bias, piece + 1)", "share.shared(bias, piece)"),
    (SHARED, norms, "share.fetched(weight)", "share.fetched(bias)"),
    (SHARED, norms, "share.fetched(bias)", "share.fetched(weight)"),
    (SHARED, norms, "share.fetched_piece(weights, piece)", "share.fetched_piece(weights, 0)"),
    (SHARED, norms, "share.fetched_piece(biases, piece)", "share.fetched_piece(biases, 0)"),
    (SHARED, norms, "        commit_group()\n", ""),
    (SHARED, norms, "wait_group(0)", "wait_group(1)"),
    (SHARED, norms, "total += each_sum(away)", "total = each_sum(away)"),
    (SHARED, norms, "squares += each_sum(away * away)", "squares = each_sum(away * away)"),
    (SHARED, norms, "away = share.known(away, 0.0, piece)", "pass"),
    (SHARED, norms, "about = finite(gl.max(first, 2))", "about = gl.max(first, 2)"),
    (SHARED, norms, " - gl.fma(its, off, 0.0)", ""),
    (SHARED, norms, "among(total, about + off)", "among(total, about)"),
    (SHARED, norms, "y * scale - share", "y * scale - 0 * share"),
    (SHARED, cluster, "places.index(piece), at, mask", "places.index(0), at, mask"),
    (SHARED, cluster, "(vector + self.first + self.element(piece))[None",
     "(vector + self.element(piece))[None"),
    (SHARED, cluster, ", at, mask=self.inside(piece)[None, :, :, :, :])", ", at)"),
    (SHARED, cluster, "return places.index(piece).load", "return places.index(0).load"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "old", "new"), OF_PIECES, ids=[old[:40] for _, old, _ in OF_PIECES]
)
def test_bugs_of_pieces_are_found(module: ModuleType, old: str, new: str, seed: int) -> None:
    bad = planted(LAYER_NORM, norms, old, new, *way_to(module))
    assert found(lambda: norm_off(bad, 1544, seed, config=PIECES) <= 4)


@pytest.mark.parametrize(("old", "new"), OF_SOFTMAX, ids=[old[:40] for old, _ in OF_SOFTMAX])
def test_bugs_of_pieces_of_softmax_are_found(old: str, new: str, seed: int) -> None:
    bad = planted(SOFTMAX, softmax, old, new)
    assert found(lambda: softmax_off(bad, 1544, False, seed, config=PIECES) <= 4)


@pytest.mark.parametrize(
    ("config", "module", "old", "new"), OF_VECTORS, ids=[old[:40] for _, _, old, _ in OF_VECTORS]
)
def test_bugs_of_vectors_are_found(
    config: ClusterConfig, module: ModuleType, old: str, new: str, seed: int
) -> None:
    bad = planted(LAYER_NORM, norms, old, new, *way_to(module))
    given = (config, replace(SMALL, SHARED=config.SHARED))  # whose last warp has none of 1544
    assert found(lambda: all(norm_off(bad, 1544, seed, config=c) <= 4 for c in given))
