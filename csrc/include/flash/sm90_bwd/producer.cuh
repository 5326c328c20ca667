// The producer: one thread that keeps the copy engine busy.
#pragma once

#include "flash/ptx/cluster.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_bwd/args.h"
#include "flash/sm90_bwd/layout.cuh"

namespace flash::sm90_bwd {

template <typename L, typename Own = Work<L>>
struct Producer {
  using Calls = typename L::Calls;
  static constexpr int kRowBytes = L::kOwnBytes / L::kRows;

  const BackwardKernelArgs& args;
  const L& smem;
  sm90::RingPosition<L::kStages1> ring1;
  sm90::RingPosition<L::kStages2> ring2;

  // The rows that stay, and every block that passes by. The second tensors come behind the first,
  // in the order in which the consumers need them.
  FLASH_DEVICE void run(const Own& work) {
    const int n_steps = work.n_steps();
    if (n_steps == 0) return;
    load_own1(work);
    Place place{work.first, 0};
    for (int step = 0; step < n_steps; ++step) {
      load_other1(work, place);
      if (step == 0) load_own2(work);
      load_other2(work, place);
      place.advance(work);
    }
  }

  FLASH_DEVICE void load_own1(const Own& work) const {
    load_own(work, smem.own1_full(), smem.own1(0), args.own1);
  }
  FLASH_DEVICE void load_own2(const Own& work) const {
    load_own(work, smem.own2_full(), smem.own2(0), args.own2);
  }

  // Of a block that passes by.
  FLASH_DEVICE void load_other1(const Own& work, const Place& place) {
    const int row = place.block * L::kColumns;
    const int head = other_head_of(work, place);
    const uint32_t full = smem.full1(ring1.buffer);
    sm90::wait_phase(smem.empty1(ring1.buffer), ring1.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, L::kOtherBytes + L::kStatsBytes);
    load_other<0>(work, full, smem.other1(ring1.buffer), args.other1, row, head);
    if constexpr (L::kOwnsKeys) {
      constexpr int kRowsOfOne = stats_row_bytes(L::kColumns) / int{sizeof(RowStats)};
      static_assert(L::kColumns % kRowsOfOne == 0, "a block's RowStats are whole rows of the map");
      ptx::tma_load_5d(smem.stats(ring1.buffer), &args.stats, full, 0,
                       (Calls::first_stats(work) + row) / kRowsOfOne, 0, head,
                       static_cast<int>(work.batch), ptx::kEvictLast);
    }
    ring1.advance();
  }
  FLASH_DEVICE void load_other2(const Own& work, const Place& place) {
    const uint32_t full = smem.full2(ring2.buffer);
    sm90::wait_phase(smem.empty2(ring2.buffer), ring2.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, L::kOtherBytes);
    load_other<L::kBlocks - 1>(work, full, smem.other2(ring2.buffer), args.other2,
                               place.block * L::kColumns, other_head_of(work, place));
    ring2.advance();
  }

 private:
  FLASH_DEVICE int other_head_of(const Own& work, const Place& place) const {
    const int head = static_cast<int>(work.head);
    if constexpr (L::kOwnsKeys) return head * work.n_heads + place.head;
    return head / (args.call.n_heads_q / args.call.n_heads_kv);
  }

  // Rows behind the end are zeros.
  FLASH_DEVICE void load_own(const Own& work, uint32_t full, uint32_t tile,
                             const TensorMap& map) const {
    ptx::mbarrier_arrive_expect_tx(full, L::kOwnBytes);
#pragma unroll
    for (int row = 0; row < L::kRows; row += HopperBackwardKernelConfig::kGroupRows) {
      const BoxStart at = Calls::template own_box<HopperBackwardKernelConfig::kGroupRows>(
          work, work.first_row + row, static_cast<int>(work.own_head()));
      ptx::tma_load_5d(tile + row * kRowBytes, &map, full, 0, at.row, at.chunk, at.head, at.batch,
                       ptx::kEvictFirst);
    }
  }

  // One of a cluster's thread blocks, kBringer, brings the tile to all of them.
  template <int kBringer>
  FLASH_DEVICE void load_other(const Own& work, uint32_t full, uint32_t tile, const TensorMap& map,
                               int row, int head) const {
    const BoxStart at = Calls::template other_box<L::kColumns>(work, row, head);
    if constexpr (L::kBlocks == 1) {
      ptx::tma_load_5d(tile, &map, full, 0, at.row, at.chunk, at.head, at.batch, ptx::kEvictLast);
    } else if (ptx::cluster_rank() == kBringer) {
      constexpr uint16_t kAll = (1u << L::kBlocks) - 1;
      ptx::tma_multicast_5d(tile, &map, full, kAll, 0, at.row, at.chunk, at.head, at.batch,
                            ptx::kEvictLast);
    }
  }
};

}  // namespace flash::sm90_bwd
