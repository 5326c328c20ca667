// The search of tile/packed_rows.cuh: for each place, by a warp, the last sequence that has begun.
#include "flash/tile/packed_rows.cuh"

using namespace flash;

extern "C" __global__ void search(const int* starts, int count, int n_places, int* found) {
  const int lane = threadIdx.x;
  for (int place = 0; place < n_places; ++place) {
    const int last = last_begun(count, place, lane, [&](int b) { return starts[b]; });
    if (lane == place % 32) found[place] = last;
  }
}
