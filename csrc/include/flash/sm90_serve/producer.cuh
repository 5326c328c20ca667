// The producer: one warp that looks sequences up, and of which one lane keeps the copy engine busy.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_serve/mask.cuh"
#include "flash/sm90_serve/pages.cuh"
#include "flash/sm90_serve/schedule.cuh"
#include "flash/sm90_serve/storage.cuh"

namespace flash::sm90_serve {

// In place of the buffer of values that are to be cleared: the work is done.
inline constexpr int kNoBuffer = -1;

template <HopperServeKernelConfig kConfig>
struct Producer {
  static constexpr int kBlockN = kConfig.block_n;
  static constexpr sm90::HopperForwardKernelConfig kForward = kConfig.forward();
  static constexpr int kGroupRows = sm90::HopperForwardKernelConfig::kGroupRows;
  using Ring = sm90::RingPosition<kConfig.n_buffers>;

  const ServeKernelArgs& args;
  const Storage<kConfig>& smem;
  const TileSchedule<kConfig> schedule;
  const int lane;
  sm90::RingPosition<kConfig.n_q_buffers> q_ring;
  sm90::RingPosition<kConfig.n_tiles()> slot;
  Ring k_ring;
  Ring v_ring;
  Ring clearing_ring;
  int next_group = 0;
  int answer = 0;  // to one lane: where the next tile stands
  PageEntries<kConfig> pages;

  FLASH_DEVICE Producer(const ServeKernelArgs& launch_args, const Storage<kConfig>& storage,
                        int lane_of_warp)
      : args(launch_args), smem(storage), schedule(launch_args), lane(lane_of_warp) {}

  // All tiles of this thread block, last block of keys of each first; V follows one block behind K.
  FLASH_DEVICE void run() {
    Tile next;
    bool is_one = load_next_q(next, blockIdx.x);
    while (is_one) {
      const Tile tile = next;
      pages.begin_tile(kv_head(tile));
      if (tile.end > tile.begin) load_k(tile, tile.end - 1);
      ask();
      // With a second buffer the next Q is loaded as soon as the rings are full.
      const int q_at =
          kConfig.n_q_buffers == 1 ? tile.begin : max(tile.begin, tile.end - kConfig.n_buffers);
      for (int block = tile.end - 1; block > tile.begin; --block) {
        load_k(tile, block - 1);
        load_v(tile, block, pages.behind);
        if (block == q_at) is_one = load_next_q(next, answered());
      }
      if (tile.end > tile.begin) load_v(tile, tile.begin, pages.here);
      if (q_at == tile.begin) is_one = load_next_q(next, answered());
    }
    announce_end();
  }

 private:
  FLASH_DEVICE bool load_next_q(Tile& next, int position) {
    const bool is_one = find_next(next, position);
    if (is_one) {
      // Not by a function, which would change the machine code of the kernels without pack_gqa.
      const int queries = kConfig.pack_gqa ? args.group_queries : kGroupRows;
      if (next.rule.seqlen_q <= queries) take_one_group(next);
      pages.look_up_first(args, next, lane);
      load_q(next);
    }
    return is_one;
  }

  // Long before the answer is needed.
  FLASH_DEVICE void ask() {
    if (lane == 0) answer = schedule.ask(answer);
  }
  FLASH_DEVICE int answered() const {
    int position = 0;
    if (lane == 0) position = schedule.position(answer);
    return __shfl_sync(0xffffffffu, position, 0);
  }

  // The first tile that exists, from a position on.
  FLASH_DEVICE bool find_next(Tile& tile, int position) {
    while (position < schedule.n_tiles) {
      if (schedule.find(position, lane, tile)) return true;
      ask();
      position = answered();
    }
    return false;
  }

  // Sequences of one group's rows go to the groups in turn, so that these overlap.
  FLASH_DEVICE void take_one_group(Tile& tile) {
    tile.row = -next_group * Packing<kConfig>::group_queries(args);
    next_group = next_group + 1 == kConfig.n_mma_groups ? 0 : next_group + 1;
  }

  FLASH_DEVICE void load_q(const Tile& tile) {
    wait_q_empty();
    if (lane == 0) {
      write(tile);
#pragma unroll
      for (int group = 0; group < kConfig.n_mma_groups; ++group) {
        const uint32_t full = smem.q_full(q_ring.buffer, group);
        const int row = tile.row + group * Packing<kConfig>::group_queries(args);
        if (row < 0 || row >= tile.rule.seqlen_q) {
          ptx::mbarrier_arrive(full);  // nobody looks at these rows
          continue;
        }
        if constexpr (kConfig.pack_gqa) {
          load_packed_q(tile, row, smem.q(q_ring.buffer, group), full);
          continue;
        }
        ptx::mbarrier_arrive_expect_tx(full, Storage<kConfig>::kGroupQBytes);
        ptx::tma_load_5d(smem.q(q_ring.buffer, group), &args.q, full, 0, tile.q_start + row, 0,
                         tile.head, tile.q_batch, ptx::kEvictFirst);
      }
    }
    __syncwarp();
    q_ring.advance();
    slot.advance();
  }

  // A group's queries of all heads of a KV head: a box for each chunk of columns, as the map has no
  // dimension left for these.
  FLASH_DEVICE void load_packed_q(const Tile& tile, int row, uint32_t to, uint32_t full) const {
    constexpr int kChunkBytes = kGroupRows * kForward.swizzle_bytes();
    const int n_rows = args.group_queries * args.group_heads;
    ptx::mbarrier_arrive_expect_tx(full, n_rows * kForward.row_bytes());
#pragma unroll
    for (int chunk = 0; chunk < kForward.n_chunks(); ++chunk) {
      ptx::tma_load_5d(to + chunk * kChunkBytes, &args.q, full, chunk * kForward.chunk_columns(), 0,
                       tile.q_start + row, tile.head, tile.q_batch, ptx::kEvictFirst);
    }
  }

  FLASH_DEVICE void write(const Tile& tile) const {
    static_assert(4 * kTileWords <= HopperServeKernelConfig::kTileBytes);
    const uint32_t to = smem.tile(slot.buffer);
    ptx::st_shared_4<4 * kRow>(to, tile.row);
    ptx::st_shared_4<4 * kBegin>(to, tile.begin);
    ptx::st_shared_4<4 * kEnd>(to, tile.end);
    ptx::st_shared_4<4 * kSeqlenQ>(to, tile.rule.seqlen_q);
    ptx::st_shared_4<4 * kSeqlenK>(to, tile.rule.seqlen_k);
    ptx::st_shared_4<4 * kLeftpad>(to, tile.rule.leftpad);
    ptx::st_shared_4<4 * kHead>(to, tile.head);
    ptx::st_shared_4<4 * kQStart>(to, tile.q_start);
    ptx::st_shared_4<4 * kQBatch>(to, tile.q_batch);
  }

  // In place of a tile: the consumers' work is done, and that of the warp that clears.
  FLASH_DEVICE void announce_end() {
    wait_q_empty();
    wait_cleared();
    if (lane == 0) {
      ptx::st_shared_4<0>(smem.tile(slot.buffer), static_cast<uint32_t>(kNoTile));
#pragma unroll
      for (int group = 0; group < kConfig.n_mma_groups; ++group) {
        ptx::mbarrier_arrive(smem.q_full(q_ring.buffer, group));
      }
      const int place = clearing_ring.buffer;
      ptx::st_shared_4<0>(smem.clearing(place), static_cast<uint32_t>(kNoBuffer));
      ptx::mbarrier_arrive(smem.landed(place));
    }
  }

  FLASH_DEVICE void wait_q_empty() const {
#pragma unroll
    for (int group = 0; group < kConfig.n_mma_groups; ++group) {
      sm90::wait_phase(smem.q_empty(q_ring.buffer, group), q_ring.parity ^ 1);
    }
  }

  // The place of values that are to be cleared next.
  FLASH_DEVICE void wait_cleared() const {
    sm90::wait_phase(smem.cleared(clearing_ring.buffer), clearing_ring.parity ^ 1);
  }

  FLASH_DEVICE int kv_head(const Tile& tile) const {
    if constexpr (kConfig.pack_gqa) return tile.head;
    return tile.head / (args.call.n_heads_q / args.call.n_heads_kv);
  }

  FLASH_DEVICE void load_k(const Tile& tile, int block) {
    const uint32_t full = smem.k_full(k_ring.buffer);
    pages.step(args, tile, block, lane);
    sm90::wait_phase(smem.k_empty(k_ring.buffer), k_ring.parity ^ 1);
    if (lane == 0) ptx::mbarrier_arrive_expect_tx(full, kForward.k_bytes());
    copy<kForward.n_chunks()>(smem.k(k_ring.buffer), args.k, full, tile, block, pages.here);
    k_ring.advance();
  }

  FLASH_DEVICE void load_v(const Tile& tile, int block, int entries) {
    sm90::wait_phase(smem.v_empty(v_ring.buffer), v_ring.parity ^ 1);
    const int kept_from = tile.first_key - block * kBlockN;
    const int kept_to = tile.rule.seqlen_k - block * kBlockN;
    uint32_t full = smem.v_full(v_ring.buffer);
    if (kept_from > 0 || kept_to < kBlockN) {
      wait_cleared();
      full = smem.landed(clearing_ring.buffer);
      if (lane == 0) {
        const uint32_t words = smem.clearing(clearing_ring.buffer);
        ptx::st_shared_4<0>(words, v_ring.buffer);
        ptx::st_shared_4<4>(words, kept_from);
        ptx::st_shared_4<8>(words, kept_to);
      }
      clearing_ring.advance();
    }
    if (lane == 0) ptx::mbarrier_arrive_expect_tx(full, kForward.v_bytes());
    copy<kForward.n_value_chunks()>(smem.v(v_ring.buffer), args.v, full, tile, block, entries);
    v_ring.advance();
  }

  // By a whole warp, of which one lane copies. `entries`: the block's.
  template <int kChunks>
  FLASH_DEVICE void copy(uint32_t to, const sm90::TensorMap& map, uint32_t full, const Tile& tile,
                         int block, int entries) const {
    if constexpr (kConfig.paged) {
      copy_parts<kConfig, kChunks>(args, to, map, full, pages, block, entries);
    } else if (lane == 0) {
      ptx::tma_load_5d(to, &map, full, 0, tile.k_start + block * kBlockN, 0, pages.kv_head,
                       tile.k_batch, ptx::kEvictLast);
    }
  }
};

}  // namespace flash::sm90_serve
