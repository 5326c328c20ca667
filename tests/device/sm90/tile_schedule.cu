// Which tiles a block of a grid computes, and what their rows see: TileSchedule<CONFIG>.
#include "flash/sm90/schedule.cuh"

using namespace flash;
using namespace flash::sm90;

constexpr auto kConfig = CONFIG;

// Goes through the block's tiles as the producer does. out[list position][6]: thread block, round,
// the tile, and how many blocks of keys it sees. `asked`: how often all thread blocks have asked.
extern "C" __global__ void walk(const __grid_constant__ ForwardKernelArgs args, int* out,
                                int* asked) {
  const TileSchedule<kConfig> schedule(args);
  int position = blockIdx.x;
  for (int round = 0; position < schedule.n_tiles; ++round) {
    const Tile tile = schedule.tile(position);
    const int found[6] = {
        static_cast<int>(blockIdx.x), round, tile.first_row, tile.head, tile.batch,
        schedule.n_blocks(tile)};
    for (int i = 0; i < 6; ++i) out[6 * position + i] = found[i];
    const int answer = schedule.ask(round + 1);
    atomicAdd(asked, 1);
    position = schedule.position(answer);
    schedule.reset_after(answer);
  }
}

// out[i][3] of row first + i: n_visible_blocks, n_whole_blocks and n_blocks_behind_keys.
extern "C" __global__ void rows(const __grid_constant__ ForwardKernelArgs args, int first,
                                int n_rows, int* out) {
  const TileSchedule<kConfig> schedule(args);
  const int i = blockIdx.x * blockDim.x + threadIdx.x, row = first + i;
  if (i >= n_rows) return;
  out[3 * i] = schedule.n_visible_blocks(row);
  out[3 * i + 1] = schedule.n_whole_blocks(row);
  out[3 * i + 2] = schedule.n_blocks_behind_keys(row);
}

// out[thread][2]: the first row of all with thread + 1 queries, and the list position of a round.
extern "C" __global__ void places(int* out, const __grid_constant__ ForwardKernelArgs args) {
  const TileSchedule<kConfig> schedule(args);
  const int i = threadIdx.x;
  out[2 * (blockIdx.x * blockDim.x + i)] = TileSchedule<kConfig>::first_row_of_all(i + 1);
  out[2 * (blockIdx.x * blockDim.x + i) + 1] = schedule.fixed_position(i);
}
