// Values that no query of a piece sees become zeros: their weight is 0, and must not meet a NaN.
// They may be unused memory.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm90_serve_mla/place.cuh"
#include "flash/tile/key_range.cuh"

namespace flash::sm90_serve_mla {

// Whether a block has some.
template <HopperMlaKernelConfig kConfig>
FLASH_DEVICE bool needs_clearing(const KeyRange& seen, int first_key) {
  return first_key < seen.begin || first_key + kConfig.B_c > seen.end;
}

// By the threads of one group, after the block has landed. Matmuls may read it behind a barrier.
template <HopperMlaKernelConfig kConfig>
FLASH_DEVICE void clear(const Place<kConfig>& at, int stage, const KeyRange& seen, int first_key) {
  constexpr int kVectors = kConfig.d_v() / 8;  // of 16 bytes, of a row
  constexpr int kRows = HopperMlaKernelConfig::kGroupWarps * 32 / kVectors;  // at a time
  const int vector = at.group_thread() % kVectors;
  for (int row = at.group_thread() / kVectors; row < kConfig.B_c; row += kRows) {
    if (seen.has(first_key + row)) continue;
    ptx::st_shared_16<0>(at.chunk(stage, vector / 8) + kConfig.chunk_bytes(row) + vector % 8 * 16,
                         {});
  }
  ptx::fence_proxy_async_shared();
}

}  // namespace flash::sm90_serve_mla
