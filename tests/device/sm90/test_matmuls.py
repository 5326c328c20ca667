"""Matmuls of the Hopper family against fp64, on tiles as the copy engine leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernel_configs import HopperForwardKernelConfig
from tests.device.launching import SM90, device_kernel, given, launch, wanted
from tests.device.layouts import accumulators, chunks, in_shared_memory, warps
from tests.emulator.attention import from_bits, to_bits

from .configs import BF16, FP16, config

FILE = "sm90/matmuls.cu"
ROWS = 64  # of a warpgroup
CONFIGS = [
    config(FP16, d_head=64, block_n=64, n_q_buffers=2),
    config(BF16, d_head=128, block_n=176, o_in_q=True),
    config(FP16, d_head=96, block_n=112, n_buffers=3),  # rows of 64 bytes
    config(BF16, d_head=192, block_n=80, n_mma_groups=1),
    config(FP16, d_head=256, block_n=48, n_mma_groups=1),
    config(BF16, d_head=64, block_n=144, n_mma_groups=3),
]
each_config = pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)


def draw(seed: int, c: HopperForwardKernelConfig) -> tuple[dict[str, Any], Any]:
    """Tiles q[buffer, group], k[buffer] and v[buffer] as bits, and the shared memory that holds
    them in this order."""
    rng = np.random.default_rng(seed)
    tiles = {
        "q": (c.n_q_buffers, c.n_mma_groups, ROWS, c.d_head),
        "k": (c.n_buffers, c.block_n, c.d_head),
        "v": (c.n_buffers, c.block_n, c.d_head),
    }
    drawn = {
        name: to_bits(rng.standard_normal(shape).astype(np.float32), c.dtype)
        for name, shape in tiles.items()
    }
    matrices = [tile.reshape(-1, *tile.shape[-2:]) for tile in drawn.values()]
    image = np.concatenate(
        [in_shared_memory(chunks(matrix, c.chunk_columns()), c.swizzle_bytes())
         for group in matrices for matrix in group]
    )  # fmt: skip
    return drawn, given(image)


def shared_image(image: Any, c: HopperForwardKernelConfig) -> Any:
    """The memory with room for the output after it, unless that shares Q's."""
    of_o = 0 if c.o_in_q else c.n_mma_groups * ROWS * 2 * c.d_head
    return given(np.concatenate([image, np.zeros(of_o, np.uint8)]))


def registers(values: Any) -> Any:
    return given(warps(accumulators, values).reshape(128, -1), np.float32)


@each_config
def test_scores(headers: Path, kernel_config: HopperForwardKernelConfig, seed: int) -> None:
    """For every buffer and every group. What the registers held before does not matter."""
    c = kernel_config
    tiles, image = draw(seed, c)
    image = shared_image(image, c)
    kernel = device_kernel(headers, FILE, "scores", SM90, c)
    for q_buffer, group, k_buffer in np.ndindex(c.n_q_buffers, c.n_mma_groups, c.n_buffers):
        q, k = tiles["q"][q_buffer, group], tiles["k"][k_buffer]
        expected = registers(from_bits(q, c.dtype) @ from_bits(k, c.dtype).T)
        scores = wanted(expected.shape, np.float32)
        launch(kernel, image, scores, q_buffer, group, k_buffer, k_buffer % 2, block=128,
               shared=image.size)  # fmt: skip
        np.testing.assert_allclose(scores, expected, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("cleared", [0, 1, 2])
@each_config
def test_weighted_values_are_added(
    headers: Path, kernel_config: HopperForwardKernelConfig, cleared: int, seed: int
) -> None:
    """The weights are rounded to the element type first, and before_end runs once."""
    c = kernel_config
    tiles, image = draw(seed, c)
    image = shared_image(image, c)
    rng = np.random.default_rng(seed + 1)
    p = rng.uniform(0, 1, (ROWS, c.block_n)).astype(np.float32)
    before = rng.standard_normal((ROWS, c.d_head)).astype(np.float32)
    kernel = device_kernel(headers, FILE, "output", SM90, c)
    for v_buffer in range(c.n_buffers):
        v = from_bits(tiles["v"][v_buffer], c.dtype)
        expected = from_bits(to_bits(p, c.dtype), c.dtype) @ v + (0 if cleared else before)
        output, calls = registers(before).copy(), wanted(128, np.int32)
        launch(kernel, image, registers(p), output, calls, v_buffer, cleared, block=128,
               shared=image.size)  # fmt: skip
        np.testing.assert_allclose(output, registers(expected), rtol=3e-5, atol=3e-5)
        np.testing.assert_array_equal(calls, 1)
