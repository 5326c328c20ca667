"""ptx/wgmma.cuh against fp64, with descriptors and tiles as the PTX ISA describes them."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import WgmmaError
from flash_helpers.kernel_configs import DType
from tests.device.launching import SM90, device_kernel, entry_text, given, launch, wanted
from tests.device.layouts import a_registers, accumulators, chunks, in_shared_memory, warps
from tests.emulator.attention import from_bits, to_bits

FILE = "ptx/wgmma.cu"
N = (32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 256)
DEPTH = 64  # kSteps of 16
MAJOR = {"ss_a_mn": 1, "ss_mn": 2, "rs": 2}
MODES = {128: 1, 64: 2, 32: 3}


def descriptor(start: int, leading: int, stride: int, swizzle: int) -> int:
    """The descriptor of a tile `start` bytes into shared memory; all offsets in bytes."""
    return start // 16 | leading // 16 << 16 | stride // 16 << 32 | MODES[swizzle] << 62


def operands(memory: Any, a: int, b: int, a_step: int, b_step: int) -> bytes:
    return struct.pack("<Qi4x4Q", memory.ctypes.data, memory.size // 16, a, b, a_step, b_step)


def draw(rng: Any, shape: tuple[int, ...], dtype: DType, exact: bool) -> Any:
    values = rng.integers(-9, 9, shape) if exact else rng.standard_normal(shape)
    return to_bits(values.astype(np.float32), dtype)


def shared_tiles(a: Any, b: Any) -> tuple[Any, bytes]:
    """Shared memory and operands of two K-major tiles with the 128-byte swizzle: a row is 64
    elements, and a step is 32 bytes of it."""
    memory = given(np.concatenate([in_shared_memory(a, 128), in_shared_memory(b, 128)]))
    a_start, b_start = (descriptor(start, 16, 1024, 128) for start in (0, 64 * 128))
    return memory, operands(memory, a_start, b_start, 2, 2)


def tiles_with_a_transposed(a: Any, b: Any) -> tuple[Any, bytes]:
    """The same with a MN-major: a step is 16 rows of memory."""
    memory = given(np.concatenate([in_shared_memory(a.T, 128), in_shared_memory(b, 128)]))
    a_start = descriptor(0, DEPTH * 128, 1024, 128)
    return memory, operands(memory, a_start, descriptor(DEPTH * 128, 16, 1024, 128), 128, 2)


def transposed_tiles(a: Any, b: Any) -> tuple[Any, bytes]:
    """Both MN-major: b, given as its rows of N, in stripes."""
    swizzle = next(s for s in MODES if 2 * b.shape[1] % s == 0)
    stripes = in_shared_memory(chunks(b, swizzle // 2), swizzle)
    memory = given(np.concatenate([in_shared_memory(a.T, 128), stripes]))
    a_start = descriptor(0, DEPTH * 128, 1024, 128)
    b_start = descriptor(DEPTH * 128, DEPTH * swizzle, 8 * swizzle, swizzle)
    return memory, operands(memory, a_start, b_start, 128, swizzle)


def shared_tile(b: Any) -> tuple[Any, bytes]:
    """b alone, K-major."""
    memory = given(in_shared_memory(b, 128))
    return memory, operands(memory, 0, descriptor(0, 16, 1024, 128), 0, 2)


def transposed_tile(b: Any) -> tuple[Any, bytes]:
    """The same with b MN-major: its rows are rows of memory, in stripes as wide as the widest
    swizzle that divides N."""
    swizzle = next(s for s in MODES if 2 * b.shape[1] % s == 0)
    memory = given(in_shared_memory(chunks(b, swizzle // 2), swizzle))
    start = descriptor(0, DEPTH * swizzle, 8 * swizzle, swizzle)
    return memory, operands(memory, 0, start, 0, swizzle)


@pytest.mark.parametrize("form", ["ss", "rs", "rs_k", "ss_a_mn", "ss_mn"])
@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("n", N)
def test_products_are_added(headers: Path, n: int, dtype: DType, form: str, seed: int) -> None:
    """First small integers, whose sums are exact, added to given sums; then random numbers that
    overwrite the registers."""
    rng = np.random.default_rng(seed)
    for exact in (True, False):
        a, b = (draw(rng, shape, dtype, exact) for shape in ((64, DEPTH), (DEPTH, n)))
        c = rng.integers(-99, 99, (64, n)).astype(np.float32)
        if form == "rs":
            memory, record = transposed_tile(b)
        elif form == "rs_k":
            memory, record = shared_tile(b.T)
        elif form == "ss_mn":
            memory, record = transposed_tiles(a, b)
        else:
            memory, record = {"ss": shared_tiles, "ss_a_mn": tiles_with_a_transposed}[form](a, b.T)
        steps = [warps(a_registers, a[:, k : k + 16]) for k in range(0, DEPTH, 16)]
        registers = given(np.stack(steps, axis=2)) if form in ("rs", "rs_k") else np.uint64(0)
        d = given(warps(accumulators, c)).copy()
        launch(device_kernel(headers, FILE, f"n{n}", SM90), record, registers, d, exact,
               dtype is DType.BF16, MAJOR.get(form, 0), block=128, shared=memory.size,
               memory=[memory])  # fmt: skip
        expected = from_bits(a, dtype) @ from_bits(b, dtype) + (c if exact else 0)
        tolerance = 0.0 if exact else 2e-5
        np.testing.assert_allclose(d, warps(accumulators, expected), tolerance, tolerance)


def two_groups(headers: Path, second: bool, fenced: bool, n_pending: int, seed: int = 0) -> None:
    a, b = (draw(np.random.default_rng(seed), (64, 64), DType.FP16, True) for _ in "ab")
    memory, record = shared_tiles(a, b)
    d = wanted((4, 32, 32), np.float32)
    launch(device_kernel(headers, FILE, "pending", SM90), record, d, second, fenced, n_pending,
           block=128, shared=memory.size, memory=[memory])  # fmt: skip
    product = from_bits(a[:, :16], DType.FP16) @ from_bits(b[:, :16], DType.FP16).T
    np.testing.assert_array_equal(d, warps(accumulators, product))


@pytest.mark.parametrize(("second", "n_pending"), [(False, 0), (True, 0), (False, 1)])
def test_a_group_that_was_waited_for_may_be_read(
    headers: Path, second: bool, n_pending: int, seed: int
) -> None:
    two_groups(headers, second, True, n_pending, seed)


def test_a_group_in_flight_may_not_be_read(headers: Path) -> None:
    with pytest.raises(WgmmaError, match="is in flight"):
        two_groups(headers, True, True, 1)


def test_the_first_product_needs_a_fence(headers: Path) -> None:
    with pytest.raises(WgmmaError, match=r"wgmma\.fence (precedes|is missing)"):
        two_groups(headers, False, False, 0)


def test_wgmma_touch_makes_registers_opaque(headers: Path) -> None:
    for entry, additions in (("known", 0), ("touched", 1)):
        text = entry_text(headers, FILE, entry, SM90)
        assert len(re.findall(r"add\.(?:rn\.)?f32", text)) == additions
        out = wanted(32, np.float32)
        launch(device_kernel(headers, FILE, entry, SM90), out)
        np.testing.assert_array_equal(out, 3.75)
