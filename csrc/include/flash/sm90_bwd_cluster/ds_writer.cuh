// How dS leaves the registers: for the matmul of dQ of this thread block, and of the other one.
#pragma once

#include "flash/ptx/cluster.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/stmatrix.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd_cluster {

template <typename L>
struct DsWriter {
  sm90::RingPosition<L::kDsStages> ring;
  const uint32_t peer = ptx::cluster_rank() ^ 1;

  // A warp's 16 keys of a block of dS^T: the A operands (ptx/wgmma.cuh) of its steps of 16 queries.
  template <int kSteps>
  FLASH_DEVICE void write(const L& smem, const uint32_t (&d_s)[kSteps][4], int warp,
                          int lane) const {
    sm90::wait_phase(smem.ds_empty(ring.buffer), ring.parity ^ 1);
    const int key = lane % 16;
    // Pieces of 16 bytes (PTX ISA 5.5.7): the first step's, and from there to the others'.
    const int piece = lane / 16 ^ key % 8;
    const uint32_t first =
        smem.ds(ring.buffer) + warp * L::kDsWarpBytes + key * L::kDsRowBytes + piece * 16;
    static_for<0, kSteps>([&](auto step) {
      ptx::stmatrix_x4(first ^ step * 32, d_s[step][0], d_s[step][1], d_s[step][2], d_s[step][3]);
    });
  }

  // Called by the whole warp, behind write(): hands it over.
  FLASH_DEVICE void share(const L& smem, int warp, int lane) {
    ptx::fence_proxy_async_shared();  // for the matmul, and for the copy engine
    __syncwarp();                     // ... of all lanes
    if (lane == 0) {
      const uint32_t full = smem.ds_full(ring.buffer);
      const int part = warp * L::kDsWarpBytes;
      ptx::mbarrier_arrive_expect_tx(full, L::kDsWarpBytes);  // of the other thread block's
      ptx::bulk_copy_to_peer(ptx::peer_address(smem.other_ds(ring.buffer) + part, peer),
                             smem.ds(ring.buffer) + part, L::kDsWarpBytes,
                             ptx::peer_address(full, peer));
    }
    ring.advance();
  }
};

}  // namespace flash::sm90_bwd_cluster
