"""ptx/convert.cuh against numpy's rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.kernel_configs import DType
from tests.device.launching import device_kernel, given, launch, wanted
from tests.emulator.attention import to_bits

FUNCTIONS = [
    ("cvt_rn_f16x2_f32", DType.FP16),
    ("cvt_rn_bf16x2_f32", DType.BF16),
    ("pack<kFP16>", DType.FP16),
    ("pack<kBF16>", DType.BF16),
]
# Halfway between two numbers of either type, below and above an even one; the ends of the ranges.
EDGES = [0.0, -0.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65504.0, -65504.0,
         65519.0, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 2.0**-14, np.inf, -np.inf]  # fmt: skip
N = 1024


@pytest.mark.parametrize(
    ("which", "dtype"), [(i, dtype) for i, (_, dtype) in enumerate(FUNCTIONS)],
    ids=[name for name, _ in FUNCTIONS],
)  # fmt: skip
def test_pairs_are_rounded_to_nearest_even(
    headers: Path, which: int, dtype: DType, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    low, high = (rng.standard_normal((2, N)) * np.exp2(rng.uniform(-20, 10, N))).astype(np.float32)
    low[: len(EDGES)], high[-len(EDGES) :] = EDGES, EDGES
    out = wanted(N, np.uint32)
    launch(device_kernel(headers, "ptx/convert.cu"), given(low), given(high), out, which,
           grid=N // 128, block=128)  # fmt: skip
    np.testing.assert_array_equal(out & 0xFFFF, to_bits(low, dtype))
    np.testing.assert_array_equal(out >> 16, to_bits(high, dtype))


@pytest.mark.parametrize("dtype", DType)
def test_every_number_is_unpacked_exactly(headers: Path, dtype: DType) -> None:
    bits = np.arange(2**16, dtype=np.uint32)
    packed = bits | (bits[::-1] << 16)
    out = wanted((2**16, 2), np.float32)
    launch(device_kernel(headers, "ptx/convert.cu", "unpacked"), given(packed), out,
           dtype is DType.BF16, grid=2**16 // 256, block=256)  # fmt: skip
    expected = (
        (bits << 16).view(np.float32)
        if dtype is DType.BF16
        else bits.astype(np.uint16).view(np.float16).astype(np.float32)
    )
    np.testing.assert_array_equal(out[:, 0], expected)
    np.testing.assert_array_equal(out[:, 1], expected[::-1])
