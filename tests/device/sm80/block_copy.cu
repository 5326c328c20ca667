// Row blocks copied into shared memory by BlockCopy<CONFIG>.
#include "flash/sm80/forward/block_copy.cuh"

using namespace flash;
using namespace flash::sm80;

constexpr auto kConfig = CONFIG;
constexpr int kRows = 64;
constexpr int kOffset = 4096;
constexpr int kTileBytes = kRows * kConfig.d_head * 2;

template <bool kBounded>
__device__ void copy_block(const char* block, long long row_bytes, int n_rows, uint4* out) {
  extern __shared__ __align__(128) char memory[];
  const BlockCopy<kConfig> copy(ptx::shared_address(memory), threadIdx.x);
  copy.load<kRows, kOffset, kBounded>(copy.source(block, row_bytes), row_bytes, n_rows);
  load_commit<kConfig>();
  load_wait<kConfig, 0>();
  __syncthreads();
  for (int i = threadIdx.x; i < kTileBytes / 16; i += blockDim.x) {
    out[i] = reinterpret_cast<const uint4*>(memory + kOffset)[i];
  }
}

// out: the tile as it lies in shared memory.
extern "C" __global__ void copy(const char* block, long long row_bytes, int n_rows, uint4* out,
                                int bounded) {
  bounded ? copy_block<true>(block, row_bytes, n_rows, out)
          : copy_block<false>(block, row_bytes, n_rows, out);
}

// Loads two tiles in two groups, waits for the first, and reads one of them.
extern "C" __global__ void two(const char* block, long long row_bytes, uint4* out, int second) {
  extern __shared__ __align__(128) char memory[];
  const BlockCopy<kConfig> copy(ptx::shared_address(memory), threadIdx.x);
  copy.load<kRows, 0, false>(copy.source(block, row_bytes), row_bytes, kRows);
  load_commit<kConfig>();
  copy.load<kRows, kTileBytes, false>(copy.source(block, row_bytes), row_bytes, kRows);
  load_commit<kConfig>();
  load_wait<kConfig, 1>();
  __syncthreads();
  for (int i = threadIdx.x; i < kTileBytes / 16; i += blockDim.x) {
    out[i] = reinterpret_cast<const uint4*>(memory + (second ? kTileBytes : 0))[i];
  }
  load_wait<kConfig, 0>();
}
