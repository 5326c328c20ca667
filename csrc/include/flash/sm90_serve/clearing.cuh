// Values that no query of the sequence sees become zeros, where a block of V has some: their weight
// is 0, and must not meet a NaN. They may be other sequences' values, or unused memory.
//
// A warp beside the producer: the copy engine announces such a block to it, and the warp announces
// the block to the consumers.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_serve/cleared_rows.cuh"
#include "flash/sm90_serve/producer.cuh"
#include "flash/sm90_serve/storage.cuh"

namespace flash::sm90_serve {

template <HopperServeKernelConfig kConfig>
struct Clearing {
  const Storage<kConfig>& smem;
  const int lane;

  // Until the producer says that nothing is left.
  FLASH_DEVICE void run() const {
    for (sm90::RingPosition<kConfig.n_buffers> ring;; ring.advance()) {
      sm90::wait_phase(smem.landed(ring.buffer), ring.parity);
      const uint32_t words = smem.clearing(ring.buffer);
      const int buffer = word(words);
      if (buffer == kNoBuffer) return;
      const int from = word(words + 4);
      const int to = word(words + 8);
      clear_rows(smem.v(buffer), 0, from);
      clear_rows(smem.v(buffer), to, kConfig.block_n);
      ptx::fence_proxy_async_shared();  // for the matmuls
      __syncwarp();                     // ... the zeros of all lanes
      if (lane == 0) {
        ptx::mbarrier_arrive(smem.v_full(buffer));
        ptx::mbarrier_arrive(smem.cleared(ring.buffer));
      }
    }
  }

 private:
  // Read by the lane that arrives when they may be written again: racecheck follows no other.
  FLASH_DEVICE int word(uint32_t address) const {
    int value = 0;
    if (lane == 0) value = ptx::ld_shared_4(address);
    return __shfl_sync(0xffffffffu, value, 0);
  }

  // Rows [from, to) of a tile, as far as there are such, in each of its chunks.
  FLASH_DEVICE void clear_rows(uint32_t tile, int from, int to) const {
    const int first = max(from, 0);
    const int last = max(min(to, kConfig.block_n), first);  // `to` may lie far before the tile
    constexpr sm90::HopperForwardKernelConfig kForward = kConfig.forward();
    sm90_serve::clear_rows<kForward.swizzle_bytes(), kForward.n_value_chunks(), kConfig.block_n>(
        tile, first, last, lane, 32);
  }
};

}  // namespace flash::sm90_serve
