// The producer: one thread that keeps the copy engine busy.
#pragma once

#include "flash/ptx/tma.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90/shared_storage.cuh"
#include "flash/sm90/tile_schedule.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct Producer {
  static constexpr int kBlockN = kConfig.block_n;
  using Storage = SharedStorage<kConfig>;
  using Ring = RingPosition<kConfig.n_buffers>;

  const HopperForwardArgs& args;
  const Storage& smem;
  Ring k_ring;
  Ring v_ring;

  // All tiles of this thread block, last KV block of each first. V follows one block behind K, in
  // the order in which the consumers need them.
  FLASH_DEVICE void run() {
    const TileSchedule<kConfig> schedule(args);
    const int queries_per_kv = args.n_heads_q / args.n_heads_kv;
    uint32_t q_parity = 1;  // the buffers are empty at the start
    for (int round = 0; schedule.position(round) < schedule.n_tiles; ++round) {
      const Tile tile = schedule.tile(schedule.position(round));
      const int kv_head = tile.head / queries_per_kv;
      const int n_blocks = schedule.n_blocks(tile);
      load_q(tile, q_parity);
      q_parity ^= 1;
      if (n_blocks == 0) continue;  // causal, more queries than keys: the rows see no key
      load_k((n_blocks - 1) * kBlockN, kv_head, tile.batch);
      for (int block = n_blocks - 1; block > 0; --block) {
        load_k((block - 1) * kBlockN, kv_head, tile.batch);
        load_v(block * kBlockN, kv_head, tile.batch);
      }
      load_v(0, kv_head, tile.batch);
    }
  }

 private:
  FLASH_DEVICE void load_q(const Tile& tile, uint32_t parity) const {
#pragma unroll
    for (int group = 0; group < kConfig.n_mma_groups; ++group) {
      wait_phase(smem.q_empty(group), parity);
      ptx::mbarrier_arrive_expect_tx(smem.q_full(group), Storage::kGroupQBytes);
      ptx::tma_load_5d(smem.q(group), &args.q, smem.q_full(group), 0,
                       tile.first_row + group * HopperForwardKernelConfig::kGroupRows, 0, tile.head,
                       tile.batch, ptx::kEvictFirst);
    }
  }

  FLASH_DEVICE void load_k(int row, int head, int batch) {
    const uint32_t full = smem.k_full(k_ring.buffer);
    wait_phase(smem.k_empty(k_ring.buffer), k_ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, kConfig.kv_bytes());
    ptx::tma_load_5d(smem.k(k_ring.buffer), &args.k, full, 0, row, 0, head, batch, ptx::kEvictLast);
    k_ring.advance();
  }

  FLASH_DEVICE void load_v(int row, int head, int batch) {
    const uint32_t full = smem.v_full(v_ring.buffer);
    wait_phase(smem.v_empty(v_ring.buffer), v_ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, kConfig.kv_bytes());
    ptx::tma_load_5d(smem.v(v_ring.buffer), &args.v, full, 0, row, 0, head, batch, ptx::kEvictLast);
    v_ring.advance();
  }
};

}  // namespace flash::sm90
