// The two matmuls of attention on one block of keys: Matmuls<CONFIG>.
#include "flash/ptx/memory.cuh"
#include "flash/sm80/forward/matmuls.cuh"

using namespace flash;
using namespace flash::sm80;

constexpr auto kConfig = CONFIG;
using Mm = Matmuls<kConfig>;
constexpr int kOfScores = sizeof(Mm::Scores) / sizeof(float);
constexpr int kOfOutput = sizeof(Mm::Output) / sizeof(float);

__device__ uint32_t fill_shared(const uint4* image) {
  extern __shared__ __align__(128) uint4 memory[];
  for (int i = threadIdx.x; i < kConfig.smem_bytes() / 16; i += blockDim.x) memory[i] = image[i];
  __syncthreads();
  return ptx::shared_address(memory);
}

// scores[thread][...] from the tiles of Q and K, as they lie in shared memory. `twice`: added once
// more.
extern "C" __global__ void scores(const uint4* image, float* scores, int twice) {
  const uint32_t memory = fill_shared(image);
  const int thread = threadIdx.x, lane = thread % 32;
  const int warp_row = thread / 32 * kConfig.rows_per_warp();
  const Mm::Lane q_lane(memory + warp_row * Mm::Tile::kRowBytes, lane, MatrixOrder::kRowsFirst);
  const Mm::Lane k_lane(memory, lane, MatrixOrder::kColumnsFirst);
  Mm::QOperand q;
  if constexpr (Mm::QSchedule::kWhole) q.prologue(q_lane);
  Mm::Scores s;
  Mm::scores(s, q, q_lane, k_lane);
  if (twice) Mm::add_scores(s, q, q_lane, k_lane);
  for (int i = 0; i < kOfScores; ++i) scores[thread * kOfScores + i] = (&s[0][0][0])[i];
}

// output[thread][...] += p[thread][...] times V's tile. `cleared`: the output is set to 0 first.
extern "C" __global__ void output(const uint4* image, const float* p, float* output, int cleared) {
  const uint32_t memory = fill_shared(image);
  const int thread = threadIdx.x;
  const Mm::Lane v_lane(memory, thread % 32, MatrixOrder::kRowsFirst);
  Mm::Scores weights;
  Mm::Output o;
  for (int i = 0; i < kOfScores; ++i) (&weights[0][0][0])[i] = p[thread * kOfScores + i];
  for (int i = 0; i < kOfOutput; ++i) (&o[0][0][0])[i] = output[thread * kOfOutput + i];
  if (cleared) Mm::clear(o);
  Mm::accumulate(o, weights, v_lane);
  for (int i = 0; i < kOfOutput; ++i) output[thread * kOfOutput + i] = (&o[0][0][0])[i];
}
