// Which keys every query sees, and the blocks of them: tile/key_range.cuh.
#include "flash/tile/key_range.cuh"

using namespace flash;

constexpr int kKeys = 8;  // of a block

// ranges[i][2] of query i; seen[i][n_keys]: has(), and 2 more where within()
// a range of this key alone leaves it; blocks[4 + n]: those of queries [first, last],
// and of each block is_whole().
extern "C" __global__ void kernel(const __grid_constant__ KeyRule rule, int first, int last,
                                  int n_keys, int* ranges, int* seen, int* blocks) {
  const int i = threadIdx.x;
  if (i < rule.seqlen_q) {
    const KeyRange keys = rule.of(i);
    ranges[2 * i] = keys.begin;
    ranges[2 * i + 1] = keys.end;
    for (int j = 0; j < n_keys; ++j) {
      const KeyRange one = keys.within({j, j + 1});
      seen[i * n_keys + j] = keys.has(j) + 2 * (one.begin < one.end);
    }
  }
  if (i != 0) return;
  const KeyBlocks<kKeys> found(rule, first, last);
  blocks[0] = found.begin;
  blocks[1] = found.end;
  blocks[2] = found.keys.begin;
  blocks[3] = found.keys.end;
  for (int block = 0; block < n_keys / kKeys; ++block) blocks[4 + block] = found.is_whole(block);
}
