// Where a problem ends and what a row sees: bounds.cuh for CONFIG.
#include "flash/sm80/forward/bounds.cuh"

using namespace flash;
using namespace flash::sm80;

constexpr auto kConfig = CONFIG;
constexpr int kMTiles = kConfig.rows_per_warp() / 16;
constexpr int kSTiles = kConfig.B_c / 8;
constexpr int kOfThread = kMTiles * kSTiles * 4;

template <Coverage kCoverage>
__device__ void describe(const ForwardArgs& args, int first_row, int* out) {
  const Bounds<kConfig, kCoverage> bounds(args, first_row);
  out[0] = bounds.q_row;
  out[1] = bounds.q_rows;
  out[2] = bounds.n_blocks;
  out[3] = bounds.n_whole;
  out[4] = bounds.last_kv_row(args);
  out[5] = bounds.last_kv_rows(args);
}

// Each thread block takes one problem and block of queries: args[], first_rows[], out[][6].
extern "C" __global__ void bounds(const ForwardArgs* args, const int* first_rows, int* out,
                                  int any_length) {
  const int i = blockIdx.x;
  any_length ? describe<Coverage::kAnyLength>(args[i], first_rows[i], out + 6 * i)
             : describe<Coverage::kWholeBlocks>(args[i], first_rows[i], out + 6 * i);
}

// out[thread][2]: row and column.
extern "C" __global__ void places(int* out) {
  const FragmentPlace<kConfig> place;
  out[2 * threadIdx.x] = place.row;
  out[2 * threadIdx.x + 1] = place.column;
}

// Masks scores[thread][...] in place. Each thread block takes one problem, block of queries and
// block of keys.
extern "C" __global__ void mask(const ForwardArgs* args, const int* q_rows, const int* kv_rows,
                                float* scores, int may_be_last) {
  const int i = blockIdx.x;
  float s[kMTiles][kSTiles][4];
  float* of_thread = scores + (i * blockDim.x + threadIdx.x) * kOfThread;
  for (int j = 0; j < kOfThread; ++j) (&s[0][0][0])[j] = of_thread[j];
  if (may_be_last) {
    mask_scores<kConfig, true>(s, args[i], q_rows[i], kv_rows[i]);
  } else {
    mask_scores<kConfig, false>(s, args[i], q_rows[i], kv_rows[i]);
  }
  for (int j = 0; j < kOfThread; ++j) of_thread[j] = (&s[0][0][0])[j];
}

// Clears output[thread][...] and inverse[thread][kMTiles][2] of rows without keys in place.
extern "C" __global__ void clear(const ForwardArgs* args, const int* q_rows, float* output,
                                 float* inverse) {
  const int i = blockIdx.x, thread = i * blockDim.x + threadIdx.x;
  float o[kMTiles][kSTiles][4], factor[kMTiles][2];
  for (int j = 0; j < kOfThread; ++j) (&o[0][0][0])[j] = output[thread * kOfThread + j];
  for (int j = 0; j < 2 * kMTiles; ++j) factor[j / 2][j % 2] = inverse[thread * 2 * kMTiles + j];
  clear_blind_rows<kConfig>(o, factor, args[i], q_rows[i]);
  for (int j = 0; j < kOfThread; ++j) output[thread * kOfThread + j] = (&o[0][0][0])[j];
  for (int j = 0; j < 2 * kMTiles; ++j) inverse[thread * 2 * kMTiles + j] = factor[j / 2][j % 2];
}
