// The warpgroup products of ptx/wgmma.cuh: an entry for each N.
#include "flash/ptx/fence.cuh"
#include "flash/ptx/wgmma.cuh"

using namespace flash;

constexpr int kSteps = 4;  // of 16 columns of a

// What to put into shared memory, the descriptors of the first step relative to its start, and what
// each further step adds to them.
struct Operands {
  const uint4* memory;
  int n_pieces;  // of 16 bytes
  uint64_t a, b;
  uint64_t a_step, b_step;
};

__device__ uint64_t fill_shared(const Operands& operands) {
  extern __shared__ __align__(1024) uint4 memory[];
  for (int i = threadIdx.x; i < operands.n_pieces; i += 128) memory[i] = operands.memory[i];
  ptx::fence_proxy_async_shared();
  __syncthreads();
  return static_cast<uint32_t>(__cvta_generic_to_shared(memory)) / 16;
}

// Which operands are MN-major; a from registers counts for nothing.
enum Major { kNone, kA, kBoth };

// a[thread][step][4]: registers; null: a comes from shared memory, laid out as `major` says.
// d[thread][kN / 2]: accumulators.
template <int kN, DType kDType>
__device__ void multiply(const Operands& operands, const uint32_t* a, float* d, int accumulate,
                         int major) {
  const uint64_t base = fill_shared(operands);
  float sums[kN / 2];
  uint32_t registers[kSteps][4];
  for (int i = 0; i < kN / 2; ++i) sums[i] = d[threadIdx.x * (kN / 2) + i];
  for (int i = 0; i < 4 * kSteps; ++i) {
    registers[i / 4][i % 4] = a == nullptr ? 0 : a[threadIdx.x * 4 * kSteps + i];
  }
  ptx::wgmma_touch(sums);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t b = base + operands.b + step * operands.b_step;
    const int keep = accumulate || step != 0;
    if (a == nullptr) {
      const uint64_t from = base + operands.a + step * operands.a_step;
      if (major == kBoth) {
        ptx::Wgmma<kN>::template ss_mn<kDType>(sums, from, b, keep);
      } else if (major == kA) {
        ptx::Wgmma<kN>::template ss_a_mn<kDType>(sums, from, b, keep);
      } else {
        ptx::Wgmma<kN>::template ss<kDType>(sums, from, b, keep);
      }
    } else if (major == kBoth) {
      ptx::Wgmma<kN>::template rs<kDType>(sums, registers[step], b, keep);
    } else {
      ptx::Wgmma<kN>::template rs_k<kDType>(sums, registers[step], b, keep);
    }
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::wgmma_touch(sums);
  for (int i = 0; i < kN / 2; ++i) d[threadIdx.x * (kN / 2) + i] = sums[i];
}

#define ENTRY(N)                                                                                \
  extern "C" __global__ void n##N(const __grid_constant__ Operands operands, const uint32_t* a, \
                                  float* d, int accumulate, int bf16, int major) {              \
    bf16 ? multiply<N, DType::kBF16>(operands, a, d, accumulate, major)                         \
         : multiply<N, DType::kFP16>(operands, a, d, accumulate, major);                        \
  }

ENTRY(32)
ENTRY(48)
ENTRY(64)
ENTRY(80)
ENTRY(96)
ENTRY(112)
ENTRY(128)
ENTRY(144)
ENTRY(160)
ENTRY(176)
ENTRY(192)
ENTRY(256)

// Issues two groups, waits until at most kPending are in flight, and reads the first or the second.
// `fenced`: whether a fence precedes the first product.
template <int kPending>
__device__ void two_groups(const Operands& operands, float* d, int second, int fenced) {
  const uint64_t base = fill_shared(operands);
  float sums[2][32];
  for (int i = 0; i < 64; ++i) sums[i / 32][i % 32] = 0;
  ptx::wgmma_touch(sums[0]);
  ptx::wgmma_touch(sums[1]);
  if (fenced) ptx::wgmma_fence();
#pragma unroll
  for (int group = 0; group < 2; ++group) {
    ptx::Wgmma<64>::ss<DType::kFP16>(sums[group], base + operands.a, base + operands.b, 0);
    ptx::wgmma_commit_group();
  }
  ptx::wgmma_wait_group<kPending>();
  if (second) {
    ptx::wgmma_touch(sums[1]);
    for (int i = 0; i < 32; ++i) d[threadIdx.x * 32 + i] = sums[1][i];
  } else {
    ptx::wgmma_touch(sums[0]);
    for (int i = 0; i < 32; ++i) d[threadIdx.x * 32 + i] = sums[0][i];
  }
  ptx::wgmma_wait_group<0>();
}

extern "C" __global__ void pending(const __grid_constant__ Operands operands, float* d, int second,
                                   int fenced, int n_pending) {
  n_pending == 0 ? two_groups<0>(operands, d, second, fenced)
                 : two_groups<1>(operands, d, second, fenced);
}

// The compiler computes the sum itself, unless it has to assume that something else wrote the
// numbers.
extern "C" __global__ void known(float* out) {
  const float numbers[2] = {1.5f, 2.25f};
  out[threadIdx.x] = numbers[0] + numbers[1];
}
extern "C" __global__ void touched(float* out) {
  float numbers[2] = {1.5f, 2.25f};
  ptx::wgmma_touch(numbers);
  out[threadIdx.x] = numbers[0] + numbers[1];
}
