"""tile/row_dots.cuh: the RowStats of rows of any number, strides and heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernel_configs import DType
from flash_helpers.kernels.backward_args import pack_backward_args, row_stats_rows
from tests.device.launching import device_kernel, given, launch, wanted
from tests.emulator.attention import from_bits, to_bits

KINDS = [(DType.FP16, 64, 8), (DType.FP16, 96, 4), (DType.BF16, 128, 8), (DType.BF16, 256, 8)]
EVERY = pytest.mark.parametrize(("dtype", "d_head", "lanes"), KINDS)


def draw(shape: tuple[int, ...], dtype: DType, seed: int) -> tuple[Any, Any]:
    """The elements as bits, and as fp64."""
    bits = to_bits(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), dtype)
    return given(bits.astype(np.uint16)), from_bits(bits, dtype).astype(np.float64)


@EVERY
def test_lanes_share_a_row(headers: Path, dtype: DType, d_head: int, lanes: int) -> None:
    (a_bits, a), (b_bits, b) = (draw((d_head,), dtype, seed) for seed in (1, 2))
    out = wanted(1 + lanes, np.float32)
    kernel = f"lanes_{dtype.name.lower()}_{d_head}"
    launch(device_kernel(headers, "tile/row_dots.cu", kernel), a_bits, b_bits, out)
    assert out[0] == lanes
    chunks = (a * b).reshape(-1, lanes, 8)
    np.testing.assert_allclose(out[1:], chunks.sum(axis=(0, 2)), atol=1e-4)


@EVERY
@pytest.mark.parametrize("n_rows", [1, 127, 130])
@pytest.mark.parametrize("with_d_lse", [False, True])
def test_row_stats(
    headers: Path, dtype: DType, d_head: int, lanes: int, n_rows: int, with_d_lse: bool
) -> None:
    """d_o is one row for all heads; a row that sees no key, and those that fill up the last block,
    get the weights' exponent +inf and a dot of 0."""
    batch, heads = 2, 3
    o_bits, o = draw((batch, n_rows, heads, d_head), dtype, 1)
    d_o_bits, d_o = draw((batch, n_rows, 1, d_head), dtype, 2)
    rng = np.random.default_rng(3)
    lse, d_lse = rng.standard_normal((2, batch, heads, n_rows)).astype(np.float32)
    lse[1, 2, 0] = -np.inf
    lse, d_lse = given(lse), given(d_lse)
    filled = row_stats_rows(n_rows)
    stats = wanted((batch, heads, filled, 2), np.float32)
    arrays = {"o": o_bits, "d_o": d_o_bits, "lse": lse, "row_stats": stats}
    arrays |= {"d_lse": d_lse} if with_d_lse else {}
    row, all_heads = d_head, heads * d_head
    record = pack_backward_args(
        {name: x.ctypes.data for name, x in arrays.items()},
        {"o": (n_rows * all_heads, all_heads, row), "d_o": (n_rows * row, row, 0)},
        batch=batch, seqlen_q=n_rows, seqlen_k=5, n_heads_q=heads, n_heads_kv=heads,
        softmax_scale=1.0,
    )  # fmt: skip
    kernel = device_kernel(headers, "tile/row_dots.cu", f"{dtype.name.lower()}_{d_head}")
    grid = filled // (128 // lanes) * heads * batch
    launch(kernel, record, grid=grid, block=128, memory=[*arrays.values()])
    sees = np.isfinite(lse)
    dots = np.moveaxis((o * d_o).sum(axis=3), 2, 1) - (d_lse if with_d_lse else 0)
    expected = np.full((batch, heads, filled, 2), (np.inf, 0.0))
    expected[:, :, :n_rows, 0] = np.where(sees, lse * np.log2(np.e), np.inf)
    expected[:, :, :n_rows, 1] = np.where(sees, dots, 0)
    np.testing.assert_allclose(stats, expected, rtol=1e-6, atol=2e-4)


@EVERY
def test_stats_that_lie_elsewhere(headers: Path, dtype: DType, d_head: int, lanes: int) -> None:
    o_bits, o = draw((20, d_head), dtype, 1)
    d_o_bits, d_o = draw((20, d_head), dtype, 2)
    lse = given(np.random.default_rng(3).standard_normal(20).astype(np.float32))
    stats = wanted((16, 2), np.float32)
    arrays = {"o": o_bits, "d_o": d_o_bits, "lse": lse, "row_stats": stats}
    record = pack_backward_args(
        {name: x.ctypes.data for name, x in arrays.items()},
        dict.fromkeys(("o", "d_o"), (0, d_head, 0)),
        batch=1, seqlen_q=20, seqlen_k=5, n_heads_q=1, n_heads_kv=1, softmax_scale=1.0,
    )  # fmt: skip
    kernel = device_kernel(headers, "tile/row_dots.cu", f"shifted_{dtype.name.lower()}_{d_head}")
    launch(kernel, record, grid=1, block=16 * lanes, memory=[*arrays.values()])
    expected = np.stack([lse[3:19] * np.log2(np.e), (o * d_o).sum(axis=1)[3:19]], axis=1)
    expected[15] = np.inf, 0.0
    np.testing.assert_allclose(stats, expected, rtol=1e-6, atol=2e-4)


@EVERY
def test_what_the_lanes_of_a_row_have_is_added_up(
    headers: Path, dtype: DType, d_head: int, lanes: int
) -> None:
    terms = given(np.arange(32, dtype=np.float32) ** 2)
    out = wanted(32, np.float32)
    kernel = device_kernel(headers, "tile/row_dots.cu", f"sum_{dtype.name.lower()}_{d_head}")
    launch(kernel, terms, out)
    sums = terms.reshape(-1, lanes).sum(axis=1)
    np.testing.assert_array_equal(out, np.repeat(sums, lanes))


@pytest.mark.parametrize(("lse", "stats"), [(2.0, (2 / np.log(2), 4.25)), (-np.inf, (np.inf, 5.0))])
def test_one_rows_stats(headers: Path, lse: float, stats: tuple[float, float]) -> None:
    """Without a key no gradient of the log-sum-exp is taken from the dot."""
    arrays = {
        "lse": given(np.array([1.0, lse], np.float32)),
        "d_lse": given(np.array([9.0, 0.75], np.float32)),
        "row_stats": wanted((4, 2), np.float32),
    }
    found = arrays["row_stats"]
    found[:] = 7.0
    record = pack_backward_args(
        {name: x.ctypes.data for name, x in arrays.items()}, {}, batch=1, seqlen_q=2, seqlen_k=5,
        n_heads_q=1, n_heads_kv=1, softmax_scale=1.0,
    )  # fmt: skip
    kernel = device_kernel(headers, "tile/row_dots.cu", "store")
    launch(kernel, record, np.float32(5.0), memory=[*arrays.values()], block=1)
    np.testing.assert_allclose(found[2], stats, rtol=1e-6)
    assert (found[[0, 1, 3]] == 7.0).all()
