"""Matmuls of the Ampere family against fp64: the same products with every schedule of loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernel_configs import FlashForwardKernelConfig
from tests.device.launching import device_kernel, given, launch
from tests.device.layouts import accumulators, in_tile, warps
from tests.emulator.attention import from_bits, to_bits

from .configs import BF16, FP16, config

FILE = "sm80/matmuls.cu"
CONFIGS = [
    config(FP16, 64, B_c=32),
    config(BF16, 128, load=(2, 2, 2), buffer=True),
    config(FP16, 64, load=(1, 1, 1), swizzled=False),
    config(BF16, 64, B_c=32, load=(0, 1, 1), buffer=True),
    config(FP16, 128, B_r=128, B_c=64, load=(4, 2, 4)),  # two tiles of 16 rows to a warp
    config(BF16, 128, B_r=64, B_c=128, load=(2, 4, 2), buffer=True, n_warps=2),
]
each_config = pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)


def draw(seed: int, kernel_config: FlashForwardKernelConfig) -> tuple[Any, Any, Any, Any]:
    """Q, K and V as bits, and the shared memory that holds them."""
    rng, block = np.random.default_rng(seed), (kernel_config.B_r, *(kernel_config.B_c,) * 2)
    q, k, v = (
        to_bits(rng.standard_normal((rows, kernel_config.d_head)).astype(np.float32),
                kernel_config.dtype)
        for rows in block
    )  # fmt: skip
    image = np.concatenate([in_tile(rows, kernel_config.swizzled) for rows in (q, k, v)])
    assert image.size == kernel_config.smem_bytes()
    return q, k, v, given(image)


def registers(values: Any, kernel_config: FlashForwardKernelConfig) -> Any:
    """The registers (thread, register) of a block's rows."""
    return warps(accumulators, values).reshape(
        kernel_config.n_warps, -1, 32, values.shape[1] // 2
    ).transpose(0, 2, 1, 3).reshape(kernel_config.n_threads(), -1)  # fmt: skip


@pytest.mark.parametrize("twice", [False, True])
@each_config
def test_scores(
    headers: Path, kernel_config: FlashForwardKernelConfig, twice: bool, seed: int
) -> None:
    q, k, _, image = draw(seed, kernel_config)
    dtype = kernel_config.dtype
    product = from_bits(q, dtype) @ from_bits(k, dtype).T
    expected = registers(product * (2 if twice else 1), kernel_config)
    scores = given(np.full(expected.shape, np.nan), np.float32).copy()
    launch(device_kernel(headers, FILE, "scores", config=kernel_config), image, scores, twice,
           block=kernel_config.n_threads(), shared=image.size)  # fmt: skip
    np.testing.assert_allclose(scores, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("cleared", [False, True])
@each_config
def test_weighted_values_are_added(
    headers: Path, kernel_config: FlashForwardKernelConfig, cleared: bool, seed: int
) -> None:
    """The weights are rounded to the element type first."""
    *_, v, image = draw(seed, kernel_config)
    rng, dtype = np.random.default_rng(seed + 1), kernel_config.dtype
    p = rng.uniform(0, 1, (kernel_config.B_r, kernel_config.B_c)).astype(np.float32)
    before = rng.standard_normal((kernel_config.B_r, kernel_config.d_head)).astype(np.float32)
    expected = from_bits(to_bits(p, dtype), dtype) @ from_bits(v, dtype)
    expected += 0 if cleared else before
    output = given(registers(before, kernel_config)).copy()
    launch(device_kernel(headers, FILE, "output", config=kernel_config), image,
           given(registers(p, kernel_config)), output, cleared,
           block=kernel_config.n_threads(), shared=image.size)  # fmt: skip
    np.testing.assert_allclose(output, registers(expected, kernel_config), rtol=2e-5, atol=2e-5)
