// Who has which keys, and when its turn comes: tile/ordered_tiles.cuh.
#include "flash/tile/ordered_tiles.cuh"

using namespace flash;

// The members of a Layout that are asked for.
template <int kTheColumns, bool kWide, bool kForwards>
struct Blocks {
  static constexpr bool kOwnsKeys = true;
  static constexpr bool kStaggers = false;
  static constexpr bool kInOrder = true;
  static constexpr int kRows = 128;
  static constexpr int kColumns = kTheColumns;
  static constexpr bool kWideSections = kWide;
  static constexpr bool kWideForwards = kForwards;
};

// tiles[place of the grid] = {batch, head, block of keys, tiles, blocks of a head, those of them
// that come backwards, direction, the first block of queries}, and numbers[place][block of queries]
// how many add before; -1: it sees none of them. 1 thread for each place.
template <typename L>
__device__ void tell(const BackwardArgs& args, int* tiles, int* numbers, int n_blocks) {
  const auto heads = static_cast<unsigned>(args.n_heads_kv);
  const OrderedGrid<L> grid(args, heads);
  const OwnTile tile = grid.tile(blockIdx.x);
  const Work<L> work(args, tile);
  const TileOrder<L> order(args, tile, heads);
  int* const own = tiles + blockIdx.x * 8;
  own[0] = static_cast<int>(tile.batch);
  own[1] = static_cast<int>(tile.head);
  own[2] = static_cast<int>(tile.block);
  own[3] = static_cast<int>(grid.n_tiles());
  own[4] = static_cast<int>(OrderedGrid<L>::blocks_of_head(args));
  own[5] = static_cast<int>(OrderedGrid<L>::backwards(args, heads));
  own[6] = order.direction;
  own[7] = order.first_of(work.begin, work.end);
  for (int i = 0; i < n_blocks; ++i) {
    const bool seen = i >= work.begin && i < work.end;
    numbers[blockIdx.x * n_blocks + i] = seen ? static_cast<int>(order.number(i)) : -1;
  }
}

extern "C" __global__ void square(const __grid_constant__ BackwardArgs args, int* tiles,
                                  int* numbers, int n_blocks) {
  tell<Blocks<128, true, true>>(args, tiles, numbers, n_blocks);
}
extern "C" __global__ void wide(const __grid_constant__ BackwardArgs args, int* tiles, int* numbers,
                                int n_blocks) {
  tell<Blocks<64, false, true>>(args, tiles, numbers, n_blocks);
}
extern "C" __global__ void narrow(const __grid_constant__ BackwardArgs args, int* tiles,
                                  int* numbers, int n_blocks) {
  tell<Blocks<64, false, false>>(args, tiles, numbers, n_blocks);
}
