"""ptx/mma.cuh against fp64, with the fragments as its header describes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.kernel_configs import DType
from tests.device.launching import device_kernel, given, launch
from tests.device.layouts import a_registers, accumulators, b_registers
from tests.emulator.attention import from_bits, to_bits

FUNCTIONS = [
    ("mma_m16n8k16_f16", DType.FP16),
    ("mma_m16n8k16_bf16", DType.BF16),
    ("mma_m16n8k16<kFP16>", DType.FP16),
    ("mma_m16n8k16<kBF16>", DType.BF16),
]


@pytest.mark.parametrize(
    ("which", "dtype"), [(i, dtype) for i, (_, dtype) in enumerate(FUNCTIONS)],
    ids=[name for name, _ in FUNCTIONS],
)  # fmt: skip
def test_products_are_added(headers: Path, which: int, dtype: DType, seed: int) -> None:
    """First small integers, whose sums are exact; then random numbers."""
    rng = np.random.default_rng(seed)
    kernel = device_kernel(headers, "ptx/mma.cu")
    for exact in (True, False):
        draw = rng.standard_normal if not exact else lambda shape: rng.integers(-9, 9, shape)
        a, b = to_bits(draw((16, 16)) * 1.0, dtype), to_bits(draw((16, 8)) * 1.0, dtype)
        c = draw((16, 8)).astype(np.float32)
        registers = given(accumulators(c)).copy()
        launch(kernel, given(a_registers(a)), given(b_registers(b)), registers, which)
        expected = accumulators(from_bits(a, dtype) @ from_bits(b, dtype) + c)
        tolerance = 0.0 if exact else 1e-5
        np.testing.assert_allclose(registers, expected, rtol=tolerance, atol=tolerance)
