// RowStats: tile/row_dots.cuh and its launch, tile/row_stats.h.
#include "flash/tile/row_dots.cuh"
#include "flash/tile/row_stats.h"

using namespace flash;

#define KERNELS(NAME, DTYPE, D_HEAD)                                                              \
  extern "C" __global__ void NAME(const __grid_constant__ BackwardArgs args) {                    \
    write_row_stats<DTYPE, D_HEAD, 128>(args);                                                    \
  }                                                                                               \
  /* Rows 3 to 18 of the first head, of which the last does not exist, as RowStats 0 to 15. */    \
  extern "C" __global__ void shifted_##NAME(const __grid_constant__ BackwardArgs args) {          \
    constexpr int kLanes = lanes_of_row(D_HEAD);                                                  \
    const int row = static_cast<int>(threadIdx.x) / kLanes;                                       \
    write_stats_of_row<DTYPE, D_HEAD>(args, 0, row + 3, row < 15, row, 16, threadIdx.x % kLanes); \
  }                                                                                               \
  extern "C" __global__ void lanes_##NAME(const char* a, const char* b, float* out) {             \
    constexpr int kLanes = lanes_of_row(D_HEAD);                                                  \
    if (threadIdx.x >= kLanes) return;                                                            \
    out[0] = kLanes;                                                                              \
    out[1 + threadIdx.x] = dot_of_lane<DTYPE, D_HEAD>(a, b, threadIdx.x);                         \
  }                                                                                               \
  extern "C" __global__ void sum_##NAME(const float* in, float* out) {                            \
    out[threadIdx.x] = sum_of_lanes<D_HEAD>(in[threadIdx.x]);                                     \
  }

// Those of the second row, third of all.
extern "C" __global__ void store(const __grid_constant__ BackwardArgs args, float dot) {
  store_row_stats(args, 1, args.lse[1], dot, 2);
}

KERNELS(fp16_64, DType::kFP16, 64)
KERNELS(fp16_96, DType::kFP16, 96)
KERNELS(bf16_128, DType::kBF16, 128)
KERNELS(bf16_256, DType::kBF16, 256)
