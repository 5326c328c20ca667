// Where the parts of the shared memory lie: SharedStorage<CONFIG>.
#include "flash/sm90/storage.cuh"

using namespace flash;
using namespace flash::sm90;

constexpr auto kConfig = CONFIG;

// Addresses, in this order: Q, q_full, q_empty of each buffer and group; O of each group and warp;
// K, V, k_full, k_empty, v_full, v_empty of each buffer; the tile number of each Q buffer.
extern "C" __global__ void kernel(int* out, int base) {
  const SharedStorage<kConfig> smem{static_cast<uint32_t>(base)};
  for (int buffer = 0; buffer < kConfig.n_q_buffers; ++buffer) {
    for (int group = 0; group < kConfig.n_mma_groups; ++group) {
      *out++ = smem.q(buffer, group);
      *out++ = smem.q_full(buffer, group);
      *out++ = smem.q_empty(buffer, group);
    }
  }
  for (int group = 0; group < kConfig.n_mma_groups; ++group) {
    for (int warp = 0; warp < 4; ++warp) *out++ = smem.o(group, warp);
  }
  for (int buffer = 0; buffer < kConfig.n_buffers; ++buffer) {
    *out++ = smem.k(buffer);
    *out++ = smem.v(buffer);
    *out++ = smem.k_full(buffer);
    *out++ = smem.k_empty(buffer);
    *out++ = smem.v_full(buffer);
    *out++ = smem.v_empty(buffer);
  }
  for (int buffer = 0; buffer < kConfig.n_q_buffers; ++buffer) *out++ = smem.tile_index(buffer);
}
