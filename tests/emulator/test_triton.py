"""Kernels that Triton compiled (tests/emulator/data: no GPU, no nvcc) run in the emulator too."""

from __future__ import annotations

import importlib.util
import os
import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import LaunchReport, compile_kernel, memory_range_of
from flash_helpers.kernel_configs import DType

from .attention import from_bits, to_bits
from .support import aligned

DATA = Path(__file__).parent / "data"


def launch(name: str, grid: tuple[int, int, int], arguments: Sequence[Any]) -> LaunchReport:
    """Runs data/triton_NAME.ptx as Triton's launcher would: two scratch pointers, here null, follow
    the arguments, and how many warps and bytes of shared memory it wants stands in line two."""
    ptx = (DATA / f"triton_{name}.ptx").read_text()
    warps, shared = map(int, re.findall(r"\d+", ptx.splitlines()[1]))
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    values = [
        struct.pack("<Q", a.ctypes.data) if isinstance(a, np.ndarray) else struct.pack("<i", a)
        for a in arguments
    ]
    return compile_kernel(ptx, name.split("_")[0]).launch(
        grid, (32 * warps, 1, 1), shared, [*values, bytes(8), bytes(8)],
        [memory_range_of(a, f"array {i}", writable=a is arrays[-1]) for i, a in enumerate(arrays)],
    )  # fmt: skip


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    values = aligned(shape, np.float32)
    values[:] = np.random.default_rng(seed).standard_normal(shape)
    return values


def test_add(seed: int) -> None:
    x, y, out = numbers((1000,), seed), numbers((1000,), seed + 1), aligned(1000, np.float32)
    launch("add", (2, 1, 1), [x, y, out, 1000])
    np.testing.assert_array_equal(out, x + y)


def test_softmax(seed: int) -> None:
    x, out = numbers((5, 200), seed), aligned((5, 200), np.float32)
    report = launch("softmax", (5, 1, 1), [x, out, 200])
    weights = np.exp(x - x.max(axis=1, keepdims=True).astype(np.float64))
    np.testing.assert_allclose(out, weights / weights.sum(axis=1, keepdims=True), rtol=1e-6)
    assert report.collectives["shfl"]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_matmul(dtype: str, seed: int) -> None:
    m, n, k = 48, 80, 112  # blocks of 32: all three have a ragged end
    a, b = numbers((m, k), seed), numbers((k, n), seed + 1)
    c = aligned((m, n), np.float32)
    if dtype == "fp32":  # computed in tf32: ten bits of fraction, the others ignored
        exact = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
                 for x in (a, b)]  # fmt: skip
        operands = [a, b]
    else:
        operands = [aligned(x.shape, np.uint16) for x in (a, b)]
        for operand, x in zip(operands, (a, b), strict=True):
            operand[:] = to_bits(x, DType[dtype.upper()])
        exact = [from_bits(x, DType[dtype.upper()]) for x in operands]
    report = launch(f"matmul_{dtype}", (2, 3, 1), [*operands, c, m, n, k])
    # Every product is added with one rounding to f32, of a partial sum of at most |a| |b|.
    bound = k * 2.0**-24 * (np.abs(exact[0]) @ np.abs(exact[1]))
    assert (np.abs(c - exact[0] @ exact[1]) <= bound).all()
    # Whole blocks are multiplied: 6 of 32 x 32, 4 steps of 32 along k.
    assert report.mma_instructions == 6 * 4 * 32**3 // (16 * 8 * (8 if dtype == "fp32" else 16))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_the_stored_ptx_is_what_triton_makes_of_the_kernels(tmp_path: Path) -> None:
    command = [sys.executable, str(DATA / "make_triton_ptx.py"), str(tmp_path)]
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(command, check=True, env=environment)
    for made in tmp_path.glob("*.ptx"):
        text, stored = made.read_text(), (DATA / made.name).read_text()
        if text.splitlines()[0] == stored.splitlines()[0]:  # the same release of Triton
            assert text == stored
    assert len(list(tmp_path.glob("*.ptx"))) == len(list(DATA.glob("*.ptx")))
