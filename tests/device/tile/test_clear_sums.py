"""tile/clear_sums.cuh: thread blocks of the kernel that makes RowStats share the sums out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.kernels.backward_args import pack_backward_args
from tests.device.launching import device_kernel, launch
from tests.emulator.support import aligned


@pytest.mark.parametrize(("d_head", "lanes"), [(64, 8), (96, 4)])
def test_every_sum_of_the_blocks_rows_and_no_other(headers: Path, d_head: int, lanes: int) -> None:
    rows = 3 * 128 // lanes
    sums = aligned((rows + 1, d_head), np.float32)
    sums[...] = 1.0
    record = pack_backward_args(
        {"d_q_sums": sums.ctypes.data}, {}, batch=1, seqlen_q=rows, seqlen_k=5, n_heads_q=1,
        n_heads_kv=1, softmax_scale=1.0,
    )  # fmt: skip
    kernel = device_kernel(headers, "tile/clear_sums.cu", f"d{d_head}")
    launch(kernel, record, grid=3, block=128, memory=[sums])
    assert not sums[:rows].any() and (sums[rows] == 1.0).all()
