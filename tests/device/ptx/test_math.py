"""ptx/math.cuh against fp64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.launching import device_kernel, given, launch, wanted

FUNCTIONS = ("ex2", "lg2", "rcp", "mul_rn", "fma_rn")
N = 1024


def run(headers: Path, function: str, a: Any, b: Any = 0.0, c: Any = 0.0) -> Any:
    a, b, c = (given(np.broadcast_to(x, N), np.float32) for x in (a, b, c))
    out = wanted(N, np.float32)
    kernel = device_kernel(headers, "ptx/math.cu")
    launch(kernel, a, b, c, out, FUNCTIONS.index(function), grid=N // 128, block=128)
    return out


def ulps(values: Any, expected: Any) -> float:
    """The largest error, in units in the last place of the expected value (fp64)."""
    unit = np.spacing(np.abs(expected.astype(np.float32)))
    return float(np.max(np.abs(values.astype(np.float64) - expected) / unit))


def test_ex2(headers: Path, seed: int) -> None:
    a = np.random.default_rng(seed).uniform(-125, 127, N).astype(np.float32)
    assert ulps(run(headers, "ex2", a), np.exp2(a.astype(np.float64))) <= 2
    a[:6] = [-np.inf, 0, 3, -4, np.inf, -140]  # results below the normal numbers are 0
    expected = [0, 1, 8, 1 / 16, np.inf, 0]
    np.testing.assert_array_equal(run(headers, "ex2", a)[:6], expected)


def test_lg2(headers: Path, seed: int) -> None:
    a = np.exp2(np.random.default_rng(seed).uniform(-126, 127, N)).astype(np.float32)
    expected = np.log2(a.astype(np.float64))
    np.testing.assert_allclose(run(headers, "lg2", a), expected, rtol=2**-22, atol=2**-22)
    a[:4] = [0, 1, 2, np.inf]
    np.testing.assert_array_equal(run(headers, "lg2", a)[:4], [-np.inf, 0, 1, np.inf])


def test_rcp(headers: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = (np.exp2(rng.uniform(-120, 120, N)) * rng.choice([-1, 1], N)).astype(np.float32)
    assert ulps(run(headers, "rcp", a), 1 / a.astype(np.float64)) <= 1
    a[:4] = [0, 1, -4, np.inf]
    np.testing.assert_array_equal(run(headers, "rcp", a)[:4], [np.inf, 1, -0.25, 0])


@pytest.mark.parametrize("c", [0.0, -1.0])
def test_mul_rn_is_rounded_before_the_addition(headers: Path, c: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (1 + rng.uniform(-1e-3, 1e-3, (2, N))).astype(np.float32)
    np.testing.assert_array_equal(run(headers, "mul_rn", a, b, c), a * b + np.float32(c))


def test_fma_rn_rounds_once(headers: Path, seed: int) -> None:
    """With factors near 1 and -1 added, the digits that rounding the product would lose are most
    of the result."""
    rng = np.random.default_rng(seed)
    a, b = (1 + rng.uniform(-1e-3, 1e-3, (2, N))).astype(np.float32)
    exact = a.astype(np.float64) * b.astype(np.float64) - 1
    np.testing.assert_array_equal(run(headers, "fma_rn", a, b, -1.0), exact.astype(np.float32))
    assert np.any(a * b - np.float32(1) != exact.astype(np.float32))
