"""Threads that ask again and again, while what they wait for waits for a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.build.kernel_ptx import source_ptx
from flash_helpers.codegen.sources import include_dirs
from flash_helpers.emulator import EmulatedKernel, LaunchOptions, compile_kernel, schedules
from tests.device.launching import given, launch, wanted

# All threads but the first ask for the flag that it sets when its copy has come, and then read what
# it has written down.
SOURCE = r"""
#include "flash/ptx/atomic.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/tma.cuh"
using namespace flash;

extern "C" __global__ void kernel(const uint32_t* in, uint32_t* word, uint32_t* flag,
                                  uint32_t* out) {
  __shared__ __align__(16) uint32_t copied[4];
  __shared__ uint64_t barrier[1];
  const uint32_t full = ptx::shared_address(barrier), place = ptx::shared_address(copied);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full, 16);
    ptx::bulk_load(place, in, 16, full);
    while (!ptx::mbarrier_try_wait(full, 0)) {
    }
    *word = copied[3];
    ptx::red_add_release(flag, 1);
  } else {
    while (ptx::ld_acquire(flag) != 1) {
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = *word;
  }
}
"""


@pytest.fixture(scope="module")
def kernel() -> EmulatedKernel:
    (folder,) = (f for f in include_dirs() if (f / "flash/ptx").is_dir())
    return compile_kernel(source_ptx(SOURCE, "polling", "compute_90a", folder), "kernel")


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_copy_lands_though_others_ask(kernel: EmulatedKernel, blocks: int, seed: int) -> None:
    source: Any = given(np.arange(4), np.uint32)
    for options in schedules(seed, options=LaunchOptions(max_backward_branches=1 << 16)):
        word, flag, out = (wanted(n, np.uint32) for n in (1, 1, 64))
        flag[0] = 0
        launch(kernel, source, word, flag, out, grid=blocks, block=32, options=options)
        np.testing.assert_array_equal(out[1 : 32 * blocks], 3)
