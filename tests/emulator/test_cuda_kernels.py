"""Plain CUDA kernels as nvcc compiles them: nothing about attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    LaunchOptions,
    OutOfBoundsError,
    TrapError,
    compile_kernels,
    memory_range_of,
)

from .support import aligned, cuda_kernel, cuda_to_ptx, run

REDUCTION = """
extern "C" __global__ void kernel(const float* in, float* out) {
  __shared__ float partial[32];
  float sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
    for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}
"""


def test_vector_add() -> None:
    source = """extern "C" __global__ void kernel(const float* a, const float* b, float* c) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < 1000) c[i] = a[i] + b[i];
    }"""
    a, b, c = (aligned(1000, np.float32) for _ in range(3))
    a[:], b[:] = np.arange(1000), 7
    report = run(cuda_kernel(source), [a, b, c], block=128, grid=8)
    np.testing.assert_array_equal(c, a + b)
    assert (report.blocks, report.threads) == (8, 1024)
    unchecked = cuda_kernel(source.replace("if (i < 1000) ", ""))
    with pytest.raises(OutOfBoundsError) as caught:
        run(unchecked, [a, b, c], block=128, grid=8)
    assert caught.value.location.block == (7, 0, 0)
    assert caught.value.location.thread == (1000 - 7 * 128, 0, 0)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_reduction_is_the_same_in_every_order(workers: int, order: Any) -> None:
    rng = np.random.default_rng(3)
    values, out = aligned((5, 256), np.float32), aligned(5, np.float32)
    values[:] = rng.standard_normal(values.shape)
    options = LaunchOptions(workers=workers, lane_order=order)
    run(cuda_kernel(REDUCTION), [values, out], block=256, grid=5, options=options)
    np.testing.assert_allclose(out, values.sum(axis=1, dtype=np.float64), atol=1e-4)
    default = aligned(5, np.float32)
    run(cuda_kernel(REDUCTION), [values, default], block=256, grid=5)
    np.testing.assert_array_equal(out.view(np.uint32), default.view(np.uint32))


def test_a_missing_barrier_shows_as_poison() -> None:
    values, out = aligned(256, np.float32), aligned(1, np.float32)
    values[:] = 1
    run(cuda_kernel(REDUCTION), [values, out], block=256)
    assert out[0] == 256
    broken = cuda_kernel(REDUCTION.replace("__syncthreads();", ""))
    run(broken, [values, out], block=256, options=LaunchOptions(races="off"))
    assert np.isnan(out[0])


def test_math_local_arrays_constants_and_dynamic_parameters() -> None:
    source = """
    __constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};
    struct Arguments { float scale[5]; };
    extern "C" __global__ void kernel(const float* in, float* out, float* sines,
                                      const __grid_constant__ Arguments args, int n) {
      int i = threadIdx.x;
      float local[8];
      for (int j = 0; j < 8; j++) local[j] = in[j] * j;
      out[i] = local[(i * n) % 8] * args.scale[i % 5] + table[i & 3] + (i % n) + i / n;
      sines[i] = sinf(in[i]) + expf(in[i] / 1000) + logf(in[i] + 1) + tanhf(in[i]) + sqrtf(in[i]);
    }"""
    values, out, sines = (aligned(64, np.float32) for _ in range(3))
    values[:] = np.arange(64) * 1000.0 + 0.5
    kernel = cuda_kernel(source)
    scale = np.array([1, 2, 4, 8, 16], np.float32)
    kernel.launch(
        (1, 1, 1),
        (64, 1, 1),
        0,
        [
            *(array.ctypes.data.to_bytes(8, "little") for array in (values, out, sines)),
            scale.tobytes(),
            (3).to_bytes(4, "little"),
        ],
        [memory_range_of(array, "array") for array in (values, out, sines)],
    )
    i = np.arange(64)
    local = values[(i * 3) % 8] * ((i * 3) % 8)
    np.testing.assert_array_equal(out, local * scale[i % 5] + (i % 4 + 1) + i % 3 + i // 3)
    x = values.astype(np.float64)
    expected = np.sin(x) + np.exp(x / 1000) + np.log(x + 1) + np.tanh(x) + np.sqrt(x)
    finite = np.isfinite(expected.astype(np.float32))
    np.testing.assert_allclose(sines[finite], expected[finite], rtol=2e-6, atol=2e-6)


def test_atomics_and_block_indices() -> None:
    source = """
    __device__ unsigned counter;
    extern "C" __global__ void kernel(unsigned* histogram, float* sum, unsigned* tickets) {
      unsigned i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      atomicAdd(&histogram[(i * 64 + t) % 7], 1u);
      atomicMax(&histogram[7], i * 64 + t);
      atomicCAS(&histogram[8], i * 64 + t, 1000u);
      atomicAdd(sum, 0.5f);
      if (t == 0) tickets[atomicInc(&counter, 5u)] = i;
    }"""
    histogram, total, tickets = aligned(9, np.uint32), aligned(1, np.float32), aligned(6, np.uint32)
    arrays = (histogram, total, tickets)
    drawn = []
    for _ in range(2):
        for array in arrays:
            array[:] = 0
        report = cuda_kernel(source).launch(
            (2, 3, 1),
            (4, 8, 2),
            0,
            [array.ctypes.data.to_bytes(8, "little") for array in arrays],
            [memory_range_of(array, "array") for array in arrays],
        )
        drawn.append(tickets.tolist())
    count = np.bincount(np.arange(6 * 64) % 7)
    np.testing.assert_array_equal(histogram, [*count, 383, 1000])
    assert total[0] == 192
    assert sorted(tickets) == list(range(6))
    assert drawn[0] == drawn[1]  # one worker: blocks take turns in the same order
    assert report.workers == 1


def test_several_entries_of_one_module() -> None:
    source = """
    extern "C" __global__ void first(int* out) { out[threadIdx.x] = threadIdx.x; }
    extern "C" __global__ void second(int* out) { out[threadIdx.x] = -(int)threadIdx.x; }"""
    ptx = cuda_to_ptx(source)
    kernels = compile_kernels([(ptx, "first"), (ptx, "second")])
    out = aligned((2, 32), np.int32)
    for kernel, row in zip(kernels, out, strict=True):
        run(kernel, [row])
    np.testing.assert_array_equal(out, [np.arange(32), -np.arange(32)])


def test_cooperative_cp_async_tiles() -> None:
    """A double-buffered copy with the intrinsics of CUDA itself."""
    source = """
    #include <cuda_pipeline.h>
    extern "C" __global__ void kernel(const float4* in, float* out) {
      __shared__ float4 tile[2][128];
      const unsigned t = threadIdx.x;
      float sum = 0;
      __pipeline_memcpy_async(&tile[0][t], &in[t], 16);
      __pipeline_commit();
      for (int i = 0; i < 8; ++i) {
        if (i < 7) __pipeline_memcpy_async(&tile[(i + 1) & 1][t], &in[(i + 1) * 128 + t], 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = tile[i & 1][t ^ 64];
        sum += v.x + v.y + v.z + v.w;
        __syncthreads();
      }
      __pipeline_wait_prior(0);
      out[t] = sum;
    }"""
    values, out = aligned((8, 128, 4), np.float32), aligned(128, np.float32)
    values[:] = np.arange(values.size).reshape(values.shape) % 1013
    run(cuda_kernel(source), [values, out], block=128)
    np.testing.assert_array_equal(out, values.sum(axis=(0, 2))[np.arange(128) ^ 64])
    broken = cuda_kernel(source.replace("wait_prior(1)", "wait_prior(2)"))
    run(broken, [values, out], block=128, options=LaunchOptions(races="off"))
    assert np.isnan(out).all()


def test_half_precision_intrinsics() -> None:
    source = """
    #include <cuda_fp16.h>
    extern "C" __global__ void kernel(const __half2* a, const __half2* b, __half2* out) {
      const int i = threadIdx.x;
      out[i] = __hfma2(a[i], b[i], a[i]);
      out[i + 32] = __hmax2(a[i], b[i]);
      out[i + 64] = h2exp2(__hmul2(a[i], b[i]));
      assert(__hlt(a[i].x, __float2half(9.0f)));
    }"""
    rng = np.random.default_rng(9)
    a, b, out = aligned(64, np.float16), aligned(64, np.float16), aligned((3, 64), np.float16)
    a[:], b[:] = rng.standard_normal(64), rng.standard_normal(64)
    kernel = cuda_kernel("#include <cassert>\n" + source)
    run(kernel, [a, b, out])
    exact = a.astype(np.float64) * b
    np.testing.assert_array_equal(out[0], (exact + a).astype(np.float16))
    np.testing.assert_array_equal(out[1], np.maximum(a, b))
    np.testing.assert_allclose(out[2], np.exp2((a * b).astype(np.float64)), rtol=2e-3)
    a[10] = 9
    with pytest.raises(TrapError, match="an assertion failed") as caught:
        run(kernel, [a, b, out])
    assert caught.value.location.thread == (5, 0, 0)
