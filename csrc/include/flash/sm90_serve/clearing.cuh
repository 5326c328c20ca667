// Values that no query of the sequence sees become zeros, where a block of V has some: their weight
// is 0, and must not meet a NaN. They may be other sequences' values, or unused memory.
//
// A warp beside the producer: the copy engine announces such a block to it, and the warp announces
// the block to the consumers.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_serve/producer.cuh"
#include "flash/sm90_serve/storage.cuh"

namespace flash::sm90_serve {

template <HopperServeKernelConfig kConfig>
struct Clearing {
  const Storage<kConfig>& smem;
  const int lane;

  // Until the producer says that nothing is left.
  FLASH_DEVICE void run() const {
    for (uint32_t parity = 0;; parity ^= 1) {
      sm90::wait_phase(smem.landed(), parity);
      const int buffer = ptx::ld_shared_4(smem.clearing());
      if (buffer == kNoBuffer) return;
      const int from = ptx::ld_shared_4(smem.clearing() + 4);
      const int to = ptx::ld_shared_4(smem.clearing() + 8);
      clear_rows(smem.v(buffer), kConfig.block_n, from, to);
      ptx::fence_proxy_async_shared();  // for the matmuls
      __syncwarp();                     // ... the zeros of all lanes
      if (lane == 0) {
        ptx::mbarrier_arrive(smem.v_full(buffer));
        ptx::mbarrier_arrive(smem.cleared());
      }
    }
  }

 private:
  // Rows but [from, to) of a tile. The swizzle permutes the 16-byte pieces of a chunk's row among
  // themselves.
  FLASH_DEVICE void clear_rows(uint32_t tile, int n_rows, int from, int to) const {
    constexpr sm90::HopperForwardKernelConfig kForward = kConfig.forward();
    constexpr int kPieces = kForward.swizzle_bytes() / 16;
    const ptx::Vector16 zeros = {};
    for (int i = lane; i < kForward.n_chunks() * n_rows * kPieces; i += 32) {
      const int row = i / kPieces % n_rows;
      if (row < from || row >= to) ptx::st_shared_16<0>(tile + 16 * i, zeros);
    }
  }
};

}  // namespace flash::sm90_serve
