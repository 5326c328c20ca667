// The pieces whose keys a warp has asked for, in shared memory: found once, when their keys are,
// and read again when they are computed, a few blocks later.
#pragma once

#include "flash/ptx/device.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/shares.cuh"

namespace flash::sm80_serve {

// Of a warp; its lanes hold the same numbers. Every piece has a block, and one block is looked up
// beside those that are on their way: no more pieces are ahead of the one that is computed.
template <AmpereServeKernelConfig kConfig>
class PieceRing {
 public:
  static constexpr int kPlaces = kConfig.n_stages + 1;
  static constexpr int kPlaceBytes = AmpereServeKernelConfig::kPieceBytes;
  static_assert(sizeof(Piece<kConfig>) <= kPlaceBytes);
  static_assert(kPlaces * kPlaceBytes == kConfig.piece_ring_bytes());

  // `memory`: the rings of all warps.
  FLASH_DEVICE PieceRing(char* memory, int warp, int lane)
      : memory_(memory + warp * kConfig.piece_ring_bytes()), lane_(lane) {}

  // All lanes have read what was there before they met to begin the current piece.
  FLASH_DEVICE void add(const Piece<kConfig>& piece) {
    if (lane_ == 0) store_words(&at(added_), piece);
    __syncwarp();  // the piece is visible
    ++added_;
  }

  FLASH_DEVICE bool is_empty() const { return added_ == 0; }
  // The one that was added last.
  FLASH_DEVICE const Piece<kConfig>& newest() const { return at(added_ + kPlaces - 1); }

  // Where a warp may write the sequence of the first piece: newest().tile, until one is added.
  FLASH_DEVICE Sequence& before_first() {
    knows_sequence_ = true;
    return at(kPlaces - 1).tile;
  }
  // Whether newest() has a sequence.
  FLASH_DEVICE bool knows_sequence() const { return knows_sequence_ || !is_empty(); }

  FLASH_DEVICE bool has_next() const { return taken_ < added_; }
  FLASH_DEVICE const Piece<kConfig>& next() const { return at(taken_); }
  // The next is the current one from now on, which stays until one is added behind the next of it.
  FLASH_DEVICE void advance() { ++taken_; }
  FLASH_DEVICE const Piece<kConfig>& current() const { return at(taken_ - 1); }

 private:
  FLASH_DEVICE Piece<kConfig>& at(unsigned number) const {
    return *reinterpret_cast<Piece<kConfig>*>(memory_ + number % kPlaces * kPlaceBytes);
  }

  char* memory_;
  int lane_;
  unsigned added_ = 0;
  unsigned taken_ = 0;
  bool knows_sequence_ = false;
};

}  // namespace flash::sm80_serve
