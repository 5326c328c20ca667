// Thread blocks that read the keys of the same sequences side by side.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/device.cuh"
#include "flash/ptx/math.cuh"

namespace flash::sm80_serve {

// Counts units of a whole call: the host has no more than 2^31 counted (MOST_UNITS).
using UnitCount = uint32_t;

// a / b where it is a whole number of up to 20 bits, else a number near it: less to fetch than a
// division, which a short call would notice.
FLASH_DEVICE UnitCount quotient(UnitCount a, UnitCount b) {
  return static_cast<UnitCount>(static_cast<float>(a) * ptx::rcp(static_cast<float>(b)) + 0.5f);
}
FLASH_DEVICE bool is_multiple(UnitCount a, UnitCount b) { return quotient(a, b) * b == a; }
// a / b, rounded down, of numbers of up to 20 bits.
FLASH_DEVICE unsigned whole_quotient(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<float>(a) + 0.5f) * ptx::rcp(static_cast<float>(b)));
}

// Thread blocks with the same share, each of which has another tile of every sequence: they read
// the same keys at about the same time, so that these come from memory once. Every sequence must
// have as many tiles.
struct Abreast {
  unsigned n = 1;
  unsigned tile = 0;

  Abreast() = default;
  FLASH_DEVICE explicit Abreast(unsigned number)
      : n(number), tile(blockIdx.x - blockIdx.x / number * number) {}

  FLASH_DEVICE unsigned n_shares() const { return gridDim.x / n; }
  FLASH_DEVICE unsigned share() const { return blockIdx.x / n; }
  // That has this one's tile, and another share.
  FLASH_DEVICE int block(int its_share) const { return static_cast<int>(its_share * n + tile); }
  // Of a sequence: what its units are of, and where they begin. `of_head`: tiles of a KV head.
  FLASH_DEVICE int n_tiles(int of_head) const { return n > 1 ? 1 : of_head; }
  FLASH_DEVICE static int n_heads(const ServeArgs& args) { return args.n_heads_kv; }
  FLASH_DEVICE static unsigned first_head() { return 0; }
  FLASH_DEVICE unsigned first_tile() const { return tile; }
};

// Thread blocks with the same share, each of which has another KV head of every sequence: the heads
// of a key lie beside each other in memory, which is faster if they are read side by side. Where as
// good as no thread block is left over, else all heads are every thread block's.
//
// Thread blocks of the same share follow each other in the launch; but where it has two for each
// multiprocessor, two heads of a share do, then those of the next share: a launch in whose order
// all heads followed each other took 1 to 3 % longer where lengths are equal.
class HeadsAbreast {
 public:
  // `in_pairs`: the launch has two thread blocks for each multiprocessor.
  FLASH_DEVICE HeadsAbreast(const ServeArgs& args, bool in_pairs) : in_pairs_(in_pairs) {
    const unsigned heads = args.n_heads_kv;
    const unsigned shares = whole_quotient(gridDim.x, heads);
    const bool fits = (gridDim.x - shares * heads) * kMostIdle <= gridDim.x;
    heads_ = fits ? heads : 1;
    n_shares_ = fits ? shares : gridDim.x;
    if (!in_pairs_) {
      share_ = fits ? whole_quotient(blockIdx.x, heads) : blockIdx.x;
      head_ = blockIdx.x - share_ * heads_;
      return;
    }
    two_ = heads_ % 2 == 0 ? 1 : 0;
    const unsigned at = blockIdx.x >> two_;
    const unsigned turn = whole_quotient(at, n_shares_);
    share_ = at - turn * n_shares_;
    head_ = (turn << two_) + (blockIdx.x & two_);
    if (head_ >= heads_) {  // it is left over
      share_ = n_shares_;
      head_ = 0;
    }
  }

  FLASH_DEVICE unsigned n_shares() const { return n_shares_; }
  FLASH_DEVICE unsigned share() const { return share_; }
  FLASH_DEVICE int block(int its_share) const {
    if (!in_pairs_) return static_cast<int>(its_share * heads_ + head_);
    return static_cast<int>((((head_ >> two_) * n_shares_ + its_share) << two_) + (head_ & two_));
  }
  FLASH_DEVICE static int n_tiles(int of_head) { return of_head; }
  FLASH_DEVICE int n_heads(const ServeArgs& args) const { return heads_ > 1 ? 1 : args.n_heads_kv; }
  FLASH_DEVICE unsigned first_head() const { return head_; }
  FLASH_DEVICE static unsigned first_tile() { return 0; }

 private:
  static constexpr unsigned kMostIdle = 32;  // one thread block of so many
  bool in_pairs_;
  unsigned two_ = 0;  // 1: two heads of a share follow each other
  unsigned heads_;
  unsigned n_shares_;
  unsigned share_;
  unsigned head_;
};

}  // namespace flash::sm80_serve
