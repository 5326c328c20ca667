// The output rows of four warps: Epilogue<CONFIG>.
#include "flash/sm90/forward/epilogue.cuh"

using namespace flash;
using namespace flash::sm90;

constexpr auto kConfig = CONFIG;
using End = Epilogue<kConfig>;
constexpr int kCount = End::kCount;
constexpr int kWarpBytes = End::kRows * kConfig.row_bytes();

// Stores the registers o[thread][kCount], times inverse[thread][2], and log_sum_exp[thread][2] as
// the rows from `row` on, 16 a warp. `again`: the same rows once more, through the same memory, for
// the next head. `waits`: whether the memory is waited for.
extern "C" __global__ void kernel(const __grid_constant__ ForwardKernelArgs args, const float* o,
                                  const float* inverse, const float* log_sum_exp, int row, int head,
                                  int batch, int again, int waits) {
  extern __shared__ __align__(1024) char memory[];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const uint32_t staging =
      static_cast<uint32_t>(__cvta_generic_to_shared(memory)) + warp * kWarpBytes;
  float output[kCount];
  for (int i = 0; i < kCount; ++i) output[i] = o[thread * kCount + i];
  const float factor[2] = {inverse[2 * thread], inverse[2 * thread + 1]};
  const float lse[2] = {log_sum_exp[2 * thread], log_sum_exp[2 * thread + 1]};
  for (int i = 0; i <= again; ++i) {
    const Tile tile{row, head + i, batch};
    if (waits) End::wait_staging_free(lane);
    End::stage(output, factor, staging, lane);
    End::store(args, tile, row + 16 * warp, staging, lane);
    End::store_lse(args, tile, row + 16 * warp, lse, lane);
  }
  End::wait_staging_free(lane);
}

// How the 16-byte pieces of each row are permuted.
extern "C" __global__ void pieces(int* permuted) {
  permuted[threadIdx.x] = End::swizzle(threadIdx.x);
}
