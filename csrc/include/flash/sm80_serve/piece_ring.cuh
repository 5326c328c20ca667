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
    if (lane_ == 0) {
      // By words: assigned as it is, it was stored by bytes.
      auto* const words = reinterpret_cast<uint32_t*>(&at(added_));
#pragma unroll
      for (unsigned i = 0; i < sizeof(piece) / 4; ++i) {
        uint32_t word;
        memcpy(&word, reinterpret_cast<const char*>(&piece) + 4 * i, 4);
        words[i] = word;
      }
    }
    __syncwarp();  // the piece is visible
    ++added_;
  }

  FLASH_DEVICE bool is_empty() const { return added_ == 0; }
  // The one that was added last.
  FLASH_DEVICE const Piece<kConfig>& newest() const { return at(added_ - 1); }

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
};

}  // namespace flash::sm80_serve
