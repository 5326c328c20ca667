"""SharedStorage: nothing overlaps, nothing is left over, and tiles are aligned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.kernel_configs import HopperForwardKernelConfig
from tests.device.launching import SM90, device_kernel, launch, wanted

from .configs import config

BASE = 3 * 1024
CONFIGS = [
    config(),
    config(d_head=64, n_mma_groups=3, n_buffers=2, n_q_buffers=2),
    config(d_head=96, block_n=112, n_buffers=3, o_in_q=True),
    config(d_head=256, block_n=80, n_mma_groups=2, n_buffers=2, o_in_q=True),
]


@pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)
def test_every_byte_has_one_use(headers: Path, kernel_config: HopperForwardKernelConfig) -> None:
    c = kernel_config
    row_bytes, groups = 2 * c.d_head, c.n_mma_groups
    q, kv, warp, barrier, number = 64 * row_bytes, c.block_n * row_bytes, 16 * row_bytes, 8, 4
    in_q_buffers = [q, barrier, barrier] * (c.n_q_buffers * groups)
    of_o = [warp] * (4 * groups)
    in_buffers = [kv, kv, *[barrier] * 4] * c.n_buffers
    sizes = in_q_buffers + of_o + in_buffers + [number] * c.n_q_buffers
    out = wanted(len(sizes), np.int32)
    kernel = device_kernel(headers, "sm90/shared_storage.cu", "kernel", SM90, c)
    launch(kernel, out, BASE, block=1)

    for address, size in zip(out, sizes, strict=True):
        assert address % (size if size <= 8 else 1024 if size in (q, kv) else 128) == 0
    o = slice(len(in_q_buffers), len(in_q_buffers) + len(of_o))
    if c.o_in_q:  # over the rows that the same warps have read
        of_groups = out[: len(in_q_buffers) : 3][:groups]
        expected = of_groups[:, None] + warp * np.arange(4)
        np.testing.assert_array_equal(out[o], expected.ravel())
    pieces = [
        (int(address), size)
        for i, (address, size) in enumerate(zip(out, sizes, strict=True))
        if not (c.o_in_q and o.start <= i < o.stop)
    ]
    end = BASE
    for address, size in sorted(pieces):
        assert address == end, "an overlap, or a gap"
        end = address + size
    assert end == BASE + c.smem_bytes()
