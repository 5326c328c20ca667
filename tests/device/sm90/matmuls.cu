// The two matmuls of a warpgroup on tiles in shared memory: Matmuls<CONFIG>.
#include "flash/ptx/fence.cuh"
#include "flash/sm90/matmuls.cuh"

using namespace flash;
using namespace flash::sm90;

constexpr auto kConfig = CONFIG;
using Mm = Matmuls<kConfig>;
constexpr int kOfScores = kConfig.block_n / 2;
constexpr int kOfOutput = kConfig.d_head / 2;

__device__ SharedStorage<kConfig> fill_shared(const uint4* image) {
  extern __shared__ __align__(1024) uint4 memory[];
  for (int i = threadIdx.x; i < kConfig.smem_data_bytes() / 16; i += blockDim.x) {
    memory[i] = image[i];
  }
  ptx::fence_proxy_async_shared();
  __syncthreads();
  return {static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
}

// scores[thread][...] of a group's rows in a Q buffer and the keys in a K buffer. `again`: computed
// twice, the second time from hidden descriptors.
extern "C" __global__ void scores(const uint4* image, float* scores, int q_buffer, int group,
                                  int k_buffer, int again) {
  const SharedStorage<kConfig> smem = fill_shared(image);
  const auto operands = Mm::operands(smem, q_buffer, group, k_buffer);
  Mm::Scores s;
  for (float& x : s) x = -1.0f;
  operands.compute_now();
  Mm::issue_scores(operands, s);
  Mm::wait<0>(s);
  if (again) {
    Mm::issue_scores(operands.hidden(), s);
    Mm::wait<0>(s);
  }
  for (int i = 0; i < kOfScores; ++i) scores[threadIdx.x * kOfScores + i] = s[i];
}

// output[thread][...] += p[thread][...] times the values in a V buffer. `cleared`: the output is
// set to 0 first, if 2 by clear_once. calls[thread]: how often before_end ran.
extern "C" __global__ void output(const uint4* image, const float* p, float* output, int* calls,
                                  int v_buffer, int cleared) {
  const SharedStorage<kConfig> smem = fill_shared(image);
  const int thread = threadIdx.x;
  Mm::Scores s;
  Mm::Probabilities packed;
  Mm::Output o;
  for (int i = 0; i < kOfScores; ++i) s[i] = p[thread * kOfScores + i];
  for (int i = 0; i < kOfOutput; ++i) o[i] = output[thread * kOfOutput + i];
  if (cleared == 1) Mm::clear(o);
  if (cleared == 2) Mm::clear_once(o);
  Mm::pack(s, packed);
  int n_calls = 0;
  Mm::issue_output(smem, v_buffer, packed, o, [&] { ++n_calls; });
  Mm::wait<0>(o);
  calls[thread] = n_calls;
  for (int i = 0; i < kOfOutput; ++i) output[thread * kOfOutput + i] = o[i];
}
