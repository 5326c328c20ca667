// Blocks that all take the same time: for the measured curve of throughput against their number
// (curve.py). A library, so that the launches share the process and the timer of the kernels.
#include <cuda_runtime.h>

namespace {

constexpr int kMaxThreads = 1024;

}  // namespace

// Each thread runs a chain of `steps` multiply-adds, every one of which waits for the one before.
extern "C" __global__ void __launch_bounds__(kMaxThreads)
    wave_block(float* results, int steps, float factor, float term) {
  float x = static_cast<float>(threadIdx.x);
#pragma unroll 8
  for (int i = 0; i < steps; ++i) x = fmaf(x, factor, term);
  if (threadIdx.x == 0) results[blockIdx.x] = x;
}

// Lets `blocks_per_sm` blocks onto an SM by claiming that part of its shared memory. Returns the
// claim in bytes, or minus a cudaError_t; `got` is what the driver says fits.
extern "C" int wave_block_prepare(int device, int threads, int blocks_per_sm, int* got) {
  int in_sm = 0, in_block = 0, reserved = 0;
  cudaError_t status =
      cudaDeviceGetAttribute(&in_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&in_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device);
  }
  if (status != cudaSuccess) return -static_cast<int>(status);
  int claim = in_sm / blocks_per_sm - reserved;
  claim = claim / 1024 * 1024;
  if (claim > in_block) claim = in_block;
  const void* const kernel = reinterpret_cast<const void*>(wave_block);
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, in_block);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared);
  }
  if (status == cudaSuccess) {
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(got, kernel, threads, claim);
  }
  return status == cudaSuccess ? claim : -static_cast<int>(status);
}

// Returns a cudaError_t.
extern "C" int wave_block_launch(float* results, int blocks, int threads, int claim, int steps,
                                 void* stream) {
  wave_block<<<blocks, threads, claim, static_cast<cudaStream_t>(stream)>>>(results, steps, 0.999F,
                                                                            0.5F);
  return cudaGetLastError();
}
