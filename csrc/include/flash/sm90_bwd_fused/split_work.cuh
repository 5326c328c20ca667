// Work of thread blocks that share the query heads of a block of keys (head_splits.h).
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

  template <typename Place>
  FLASH_DEVICE SharedWork(const BackwardArgs& args, const Place& place)
      : Work<L>(args, place), n_splits(static_cast<unsigned>(args.head_splits)) {
    this->n_heads /= args.head_splits;
  }

  FLASH_DEVICE int64_t own_head() const { return static_cast<unsigned>(this->head) / n_splits; }
};

// Of a thread block with one tile.
template <typename L>
struct SplitWork : SharedWork<L> {
  FLASH_DEVICE SplitWork(const BackwardArgs& args, unsigned block)
      : SharedWork<L>(args, block / static_cast<unsigned>(args.head_splits)) {
    this->head = static_cast<unsigned>(this->head) * this->n_splits + block % this->n_splits;
  }

  // Its number among all thread blocks; those that share heads follow each other.
  FLASH_DEVICE unsigned part(const BackwardArgs&) const { return blockIdx.x; }
};

// What those kernels are compiled for.
struct SplitHeads : sm90_bwd::EqualLengths {
  static constexpr bool kSplitsHeads = true;
  static constexpr bool kBeginsEarly = true;
  template <typename L>
  using Work = SplitWork<L>;
};

}  // namespace flash::sm90_bwd_fused
