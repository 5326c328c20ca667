// The producer: one thread that keeps the copy engine busy.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90/schedule.cuh"
#include "flash/sm90/storage.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct Producer {
  static constexpr int kBlockN = kConfig.block_n;
  using Storage = SharedStorage<kConfig>;
  using Ring = RingPosition<kConfig.n_buffers>;

  const ForwardKernelArgs& args;
  const Storage& smem;
  RingPosition<kConfig.n_q_buffers> q_ring;
  Ring k_ring;
  Ring v_ring;

  // All tiles of this thread block, last KV block of each first. V follows one block behind K, in
  // the order in which the consumers need them.
  FLASH_DEVICE void run() {
    const TileSchedule<kConfig> schedule(args);
    int position = blockIdx.x;
    load_q(schedule, position);
    for (int round = 1; position < schedule.n_tiles; ++round) {
      const Tile tile = schedule.tile(position);
      const int kv_head = tile.head / (args.n_heads_q / args.n_heads_kv);
      const int n_blocks = schedule.n_blocks(tile);
      if (n_blocks > 0) load_k((n_blocks - 1) * kBlockN, kv_head, tile.batch);
      const int answer = schedule.ask(round);
      const int q_at = kConfig.n_q_buffers == 1 ? 0 : max(0, n_blocks - kConfig.n_buffers);
      for (int block = n_blocks - 1; block > 0; --block) {
        load_k((block - 1) * kBlockN, kv_head, tile.batch);
        load_v(block * kBlockN, kv_head, tile.batch);
        // With a second buffer, the next Q is loaded as soon as the rings are full, and not at the
        // end of the tile, when all thread blocks ask the memory for their next K and V.
        if (block == q_at) load_q(schedule, position = schedule.position(answer));
      }
      if (n_blocks > 0) load_v(0, kv_head, tile.batch);
      if (q_at == 0) load_q(schedule, position = schedule.position(answer));
      schedule.reset_after(answer);
    }
    announce_end();
  }

 private:
  FLASH_DEVICE void load_q(const TileSchedule<kConfig>& schedule, int position) {
    if (position >= schedule.n_tiles) return;
    const Tile tile = schedule.tile(position);
    wait_q_empty();
    ptx::st_shared_4<0>(smem.tile_index(q_ring.buffer), position);
#pragma unroll
    for (int group = 0; group < kConfig.n_mma_groups; ++group) {
      const uint32_t full = smem.q_full(q_ring.buffer, group);
      ptx::mbarrier_arrive_expect_tx(full, Storage::kGroupQBytes);
      // Below 0 there are no rows, and nobody looks at what is loaded.
      const int row = max(0, tile.first_row + group * HopperForwardKernelConfig::kGroupRows);
      ptx::tma_load_5d(smem.q(q_ring.buffer, group), &args.q, full, 0, row, 0, tile.head,
                       tile.batch, ptx::kEvictFirst);
    }
    q_ring.advance();
  }

  // In place of a tile: the consumers' work is done.
  FLASH_DEVICE void announce_end() {
    wait_q_empty();
    ptx::st_shared_4<0>(smem.tile_index(q_ring.buffer), static_cast<uint32_t>(kNoTile));
#pragma unroll
    for (int group = 0; group < kConfig.n_mma_groups; ++group) {
      ptx::mbarrier_arrive(smem.q_full(q_ring.buffer, group));
    }
  }

  FLASH_DEVICE void wait_q_empty() const {
#pragma unroll
    for (int group = 0; group < kConfig.n_mma_groups; ++group) {
      wait_phase(smem.q_empty(q_ring.buffer, group), q_ring.parity ^ 1);
    }
  }

  FLASH_DEVICE void load_k(int row, int head, int batch) {
    const uint32_t full = smem.k_full(k_ring.buffer);
    wait_phase(smem.k_empty(k_ring.buffer), k_ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, kConfig.k_bytes());
    ptx::tma_load_5d(smem.k(k_ring.buffer), &args.k, full, 0, row, 0, head, batch, ptx::kEvictLast);
    k_ring.advance();
  }

  FLASH_DEVICE void load_v(int row, int head, int batch) {
    const uint32_t full = smem.v_full(v_ring.buffer);
    wait_phase(smem.v_empty(v_ring.buffer), v_ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, kConfig.v_bytes());
    ptx::tma_load_5d(smem.v(v_ring.buffer), &args.v, full, 0, row, 0, head, batch, ptx::kEvictLast);
    v_ring.advance();
  }
};

}  // namespace flash::sm90
