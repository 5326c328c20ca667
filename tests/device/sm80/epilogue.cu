// The output of one warp: Epilogue<CONFIG>.
#include "flash/sm80/forward/epilogue.cuh"

using namespace flash;
using namespace flash::sm80;

constexpr auto kConfig = CONFIG;
using End = Epilogue<kConfig>;
constexpr int kMTiles = End::Mm::kMTiles;
constexpr int kOfLane = sizeof(End::Mm::Output) / sizeof(float);

// Stages the registers o[lane][...], times inverse[lane][kMTiles][2], `warp_rows` bytes into shared
// memory, then stores them.
extern "C" __global__ void kernel(const float* o, const float* inverse, char* rows,
                                  long long row_bytes, int n_rows, int warp_rows, int bounded) {
  extern __shared__ __align__(128) char memory[];
  const int lane = threadIdx.x;
  const uint32_t staging = ptx::shared_address(memory) + warp_rows;
  End::Mm::Output output;
  float factor[kMTiles][2];
  for (int i = 0; i < kOfLane; ++i) (&output[0][0][0])[i] = o[lane * kOfLane + i];
  for (int i = 0; i < 2 * kMTiles; ++i) factor[i / 2][i % 2] = inverse[lane * 2 * kMTiles + i];
  End::stage(output, factor, staging, lane);
  __syncwarp();
  bounded ? End::store<true>(staging, rows, row_bytes, lane, n_rows)
          : End::store<false>(staging, rows, row_bytes, lane, n_rows);
}

// log_sum_exp[lane][kMTiles][2]
extern "C" __global__ void lse(const float* log_sum_exp, float* rows, int n_rows, int bounded) {
  const int lane = threadIdx.x;
  float own[kMTiles][2];
  for (int i = 0; i < 2 * kMTiles; ++i) own[i / 2][i % 2] = log_sum_exp[lane * 2 * kMTiles + i];
  bounded ? End::store_lse<true>(own, rows, lane, n_rows)
          : End::store_lse<false>(own, rows, lane, n_rows);
}

extern "C" __global__ void without_keys(char* rows, long long row_bytes, float* lse_rows,
                                        int n_rows) {
  End::store_blind(rows, row_bytes, lse_rows, threadIdx.x, n_rows);
}
