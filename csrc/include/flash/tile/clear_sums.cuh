// Zeros for sums of dQ in global memory, where the kernel of dK and dV adds them up.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/memory.cuh"
#include "flash/tile/row_stats.h"

namespace flash {

// By the kernel that makes RowStats: its thread blocks share the sums of a head out as they do its
// rows.
template <int kDHead, int kThreads>
FLASH_DEVICE void clear_query_sums(const BackwardArgs& args) {
  constexpr int kRows = kThreads / lanes_of_row(kDHead);
  constexpr int kPieces = kRows * kDHead * int{sizeof(float)} / 16;
  static_assert(kPieces % kThreads == 0);
  char* const sums = reinterpret_cast<char*>(args.d_q_sums) + int64_t{blockIdx.x} * kPieces * 16;
#pragma unroll
  for (int piece = 0; piece < kPieces; piece += kThreads) {
    ptx::st_global_16(sums + (piece + threadIdx.x) * 16, {});
  }
}

}  // namespace flash
