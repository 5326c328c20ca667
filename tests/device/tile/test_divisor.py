"""tile/divisor.cuh: exact for every divisor, and for numbers up to the largest int."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.device.launching import device_kernel, given, launch, wanted

LARGEST = 2**31 - 1


def test_quotients_and_remainders(headers: Path, seed: int) -> None:
    """Multiples of a divisor and the numbers beside them are where an inverse fails."""
    generator = np.random.default_rng(seed)
    divisors = np.array([*range(1, 20), 48, 100, 2**16, 2**16 + 1, 2**30, LARGEST - 1, LARGEST])
    multiples = [n * d for d in divisors.tolist() for n in (1, 3, LARGEST // d)]
    beside = [n + i for n in multiples for i in (-1, 0, 1)]
    numbers = np.array([0, *beside, *generator.integers(0, LARGEST, 50).tolist()])
    numbers = numbers[numbers <= LARGEST]
    shape = (len(divisors), len(numbers))
    quotients, remainders = wanted(shape, np.uint32), wanted(shape, np.uint32)
    kernel = device_kernel(headers, "tile/divisor.cu", "divide")
    launch(
        kernel, given(numbers, np.uint32), len(numbers), given(divisors, np.uint32), len(divisors),
        quotients, remainders, block=32,
    )  # fmt: skip
    np.testing.assert_array_equal(quotients, numbers[None] // divisors[:, None])
    np.testing.assert_array_equal(remainders, numbers[None] % divisors[:, None])
