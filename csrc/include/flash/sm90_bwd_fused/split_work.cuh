// Work of thread blocks that share the query heads of a block of keys (head_splits.h), and add to
// sums of dQ as they come.
#pragma once

#include "flash/sm90_bwd/layout.cuh"
#include "flash/tile/gradient_work.cuh"

namespace flash::sm90_bwd_fused {

// KV heads, if there were one for each thread block that shares their query heads.
FLASH_DEVICE unsigned shared_heads(const BackwardArgs& args) {
  return static_cast<unsigned>(args.n_heads_kv * args.head_splits);
}

// As Work, of a thread block's share of the query heads: `head` is one of shared_heads().
template <typename L>
struct SharedWork : Work<L> {
  unsigned n_splits;

  FLASH_DEVICE SharedWork(const BackwardArgs& args, const OwnTile& tile)
      : Work<L>(args, tile), n_splits(static_cast<unsigned>(args.head_splits)) {
    this->n_heads /= args.head_splits;
  }

  FLASH_DEVICE int64_t own_head() const { return static_cast<unsigned>(this->head) / n_splits; }

  // Its number among all tiles; those that share heads follow each other.
  FLASH_DEVICE unsigned part(const BackwardArgs& args) const {
    const auto heads = static_cast<unsigned>(args.n_heads_kv);
    const unsigned own = static_cast<unsigned>(this->batch) * heads + own_head();
    const unsigned block = static_cast<unsigned>(this->first_row) / L::kRows;
    const unsigned split = static_cast<unsigned>(this->head) % n_splits;
    return (own * Work<L>::own_blocks(args) + block) * n_splits + split;
  }
};

// Of those that add as they come.
template <typename L>
struct SplitWork : SharedWork<L> {
  using SharedWork<L>::SharedWork;

  // The order in which tiles are drawn: those that share heads follow each other.
  struct Grid {
    const BackwardArgs& args;

    FLASH_DEVICE unsigned n_tiles() const {
      return Work<L>::own_blocks(args) * shared_heads(args) * static_cast<unsigned>(args.batch);
    }
    FLASH_DEVICE OwnTile tile(unsigned place) const {
      const auto splits = static_cast<unsigned>(args.head_splits);
      OwnTile found = Work<L>::tile(args, place / splits);
      found.head = found.head * splits + place % splits;
      return found;
    }
  };
  FLASH_DEVICE static Grid grid(const BackwardArgs& args) { return {args}; }
};

// What kernels are compiled for whose thread blocks add as they come.
struct AsTheyCome : sm90_bwd::EqualLengths {
  static constexpr bool kSplitsHeads = true;
  static constexpr bool kStays = true;
  template <typename L>
  using Work = SplitWork<L>;
};

}  // namespace flash::sm90_bwd_fused
