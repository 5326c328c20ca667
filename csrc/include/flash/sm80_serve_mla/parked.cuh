// What a warp knows of its tiles, kept in shared memory: registers hold the output and queries, and
// this is asked for between tiles alone.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/sm80_serve/shares.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/sm80_serve_mla/split.cuh"

namespace flash::sm80_serve_mla {

// A value of a warp, the same in all lanes, in memory of its own.
template <typename T>
class Parked {
 public:
  FLASH_DEVICE Parked(T* memory, int lane) : memory_(memory), lane_(lane) {}

  FLASH_DEVICE void operator=(const T& value) {
    __syncwarp();  // all lanes have read what was there
    if (lane_ == 0) *memory_ = value;
    __syncwarp();
  }
  FLASH_DEVICE const T& operator*() const { return *memory_; }
  FLASH_DEVICE const T* operator->() const { return memory_; }

 private:
  T* memory_;
  int lane_;
};

template <AmpereMlaKernelConfig kConfig>
class ParkedPieces {
 public:
  using Pieces = sm80_serve::Pieces<kConfig.serving()>;
  using Piece = sm80_serve::Piece<kConfig.serving()>;

  FLASH_DEVICE ParkedPieces(Pieces* memory, int lane) : pieces_(memory, lane) {}

  FLASH_DEVICE void operator=(const Pieces& pieces) { pieces_ = pieces; }
  FLASH_DEVICE operator const Pieces&() const { return *pieces_; }
  FLASH_DEVICE bool is_at_end() const { return pieces_->is_at_end(); }
  FLASH_DEVICE Piece next(const ServeArgs& args, const sm80_serve::Abreast& abreast = {},
                          const sm80_serve::Sequence* last = nullptr) {
    Pieces pieces = *pieces_;
    Piece piece = pieces.next(args, abreast, last);
    if (is_split(args)) piece.is_whole = args.n_splits == 1;
    pieces_ = pieces;
    return piece;
  }

 private:
  Parked<Pieces> pieces_;
};

// Of a warp.
template <AmpereMlaKernelConfig kConfig>
struct State {
  sm80_serve::Pieces<kConfig.serving()> pieces;  // those whose keys are copied
};

}  // namespace flash::sm80_serve_mla
