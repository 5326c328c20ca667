// setmaxnreg: registers that warps give up and others take.
#pragma once

#include "block.h"
#include "sm90_calls.h"

namespace emulator {

class RegisterPool {
 public:
  void start_block(u32 n_threads);
  void change(Lane* lane, Registers change, u32 count, u32 site);

 private:
  static constexpr u32 kAll = 64 * 1024;
  u32 free_ = 0;            // given back by warps of the block
  u32 of_warp_[kMaxWarps];  // per thread
  u32 waiting_[kMaxWarps];  // lanes that need more than are free
};

}  // namespace emulator
