// Which part of a backward pass a thread block computes where sums of dQ are added in order
// (AddBy::kInOrder).
#pragma once

#include "flash/sm90_bwd/layout.cuh"
#include "flash/sm90_bwd_fused/split_work.cuh"
#include "flash/tile/ordered_tiles.cuh"

namespace flash::sm90_bwd_fused {

template <typename L>
struct OrderedWork : SharedWork<L>, TileOrder<L> {
  using Order = TileOrder<L>;
  using Grid = OrderedGrid<L>;
  using Order::block, Order::half, Order::n_rows_before_mask;

  int last_before;  // in blocks of queries before this one nobody adds after this tile

  FLASH_DEVICE OrderedWork(const BackwardArgs& args, const OwnTile& tile)
      : SharedWork<L>(args, tile),
        Order(args, tile, shared_heads(args)),
        last_before(blocks_ended(args)) {
    this->first = Order::first_of(this->begin, this->end);
  }

  FLASH_DEVICE static Grid grid(const BackwardArgs& args) { return {args, shared_heads(args)}; }

  // Whether none adds to the sums of a block of queries after this one does.
  FLASH_DEVICE bool is_last(int queries) const { return queries < last_before; }

 private:
  // How many blocks of queries see no keys but those whose thread blocks have added when this one
  // has: of the first half all when it is its own turn, as it goes backwards.
  FLASH_DEVICE int blocks_ended(const BackwardArgs& args) const {
    if (args.d_q == nullptr || (block > 0 && block < half)) return 0;
    const unsigned n_added = block < half ? half : block + 1;
    if (n_added == Grid::blocks_of_head(args)) return this->end;
    if (!args.causal) return 0;
    const int n_queries = static_cast<int>(n_added) * L::kRows - n_rows_before_mask;
    return max(n_queries, 0) / L::kColumns;
  }
};

// What the kernels in order are compiled for.
struct InOrder : sm90_bwd::EqualLengths {
  static constexpr bool kSplitsHeads = true;
  static constexpr bool kStays = true;
  template <typename L>
  using Work = OrderedWork<L>;
};

}  // namespace flash::sm90_bwd_fused
