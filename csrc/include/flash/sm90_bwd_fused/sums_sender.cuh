// The way of dQ out of shared memory: two warps of the producer's warpgroup have the copy engine
// add what the consumer groups have staged, or store what they have rounded (sums_rounder.cuh).
//
// A group's writes take a few hundred cycles to reach shared memory beside its matmuls, and a fence
// right behind them waits for that. So the group fences a block's sums only with its next block of
// dS, and has two buffers for them. Room is waited for, and copies are issued, by a warp that has
// nothing else to do.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/ptx/reduce.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90_bwd/sums_turn.cuh"
#include "flash/sm90_bwd_fused/args.h"
#include "flash/sm90_bwd_fused/named_barriers.h"
#include "flash/sm90_bwd_fused/query_sums.cuh"
#include "flash/sm90_bwd_fused/sums_order.cuh"
#include "flash/sm90_bwd_fused/sums_rounder.cuh"
#include "flash/sm90_bwd_fused/tiles.cuh"

namespace flash::sm90_bwd_fused {

// Between a group and its sender, about one buffer. With barriers of its own each buffer is told of
// only when the sender has learned what it was told of it before. All threads of the group arrive
// at an mbarrier: racecheck follows no named barrier at which some arrive and others wait.
template <typename L>
struct Handover {
  static constexpr int kThreads = sm90_bwd::HopperBackwardKernelConfig::kGroupThreads + 32;

  const L& smem;
  const int group;
  const int buffer;

  // The group: there is room; all sums are written, and fenced.
  FLASH_DEVICE void await_room() const { ptx::bar_sync(room(), kThreads); }
  FLASH_DEVICE void staged() const { ptx::mbarrier_arrive(smem.staged(buffer, group)); }
  // The sender, likewise. `parity`: of the block.
  FLASH_DEVICE void make_room() const { ptx::bar_arrive(room(), kThreads); }
  FLASH_DEVICE void await_sums(uint32_t parity) const {
    sm90::wait_phase(smem.staged(buffer, group), parity);
  }

 private:
  FLASH_DEVICE int room() const { return kRoom + 2 * buffer + group; }
};

// A group's side: the buffer that comes next, and whether one has been filled before, of a tile. A
// single buffer is handed over at once, since the copy engine has but half a step for it.
template <typename L>
struct StagedSums {
  static constexpr int kBuffers = L::kBuffers;

  const L& smem;
  const int group;
  int buffer = 0;
  bool some = false;

  FLASH_DEVICE void await_room() const { Handover<L>{smem, group, buffer}.await_room(); }
  FLASH_DEVICE void begin_tile() {
    buffer = 0;
    some = false;
  }
  FLASH_DEVICE void filled() {
    if constexpr (kBuffers == 1) {
      ptx::fence_proxy_async_shared();
      Handover<L>{smem, group, 0}.staged();
    } else {
      buffer ^= 1;
      some = true;
    }
  }
  // Behind a fence: what was filled last.
  FLASH_DEVICE void hand_over() const {
    if (some) Handover<L>{smem, group, buffer ^ 1}.staged();
  }
  FLASH_DEVICE void fence_and_hand_over() const {
    if constexpr (kBuffers > 1) {
      ptx::fence_proxy_async_shared();
      hand_over();
    }
  }
};

// One for each buffer, so that each has two steps' time; or for each group's part of a single one.
template <FusedBackwardKernelConfig kConfig, typename L>
struct SumsSender {
  static constexpr int kGroups = FusedBackwardKernelConfig::kGroups;
  static constexpr int kBuffers = L::kBuffers;
  static constexpr bool kOfGroup = kBuffers == 1;
  static_assert(!kOfGroup || FusedBackwardKernelConfig::kSenders == kGroups, "one for each group");
  using Sums = QuerySums<kConfig>;
  using Work = typename L::Work;

  const BackwardKernelArgs& args;
  const L& smem;
  const int sender;
  const int lane;
  uint32_t parity = 0;           // of the block
  uint32_t* counters = nullptr;  // in order

  // A tile: all lanes. What comes next is worked out while the copy engine reads.
  FLASH_DEVICE void run(const Work& work) {
    if (work.n_steps() == 0) return;
    Place place{work.first, 0};
    if (buffer() > 0) place.advance(work);
    if (place.is_behind(work)) return;
    Rows rows(args.call, work);
    rows.keep();
    if constexpr (L::kInOrder) counters = ptx::hidden(counters_of<kConfig>(args.call));
    Share share = share_at(work, rows, place);
    make_room(share);
#pragma unroll 1
    for (;;) {
      if constexpr (L::kInOrder) {
        if (!share.rounds && lane == 0) await_turn(share);
      }
      for_each_group([&](int group) {
        Handover<L>{smem, group, buffer()}.await_sums(parity);
        meet();
        if (lane == 0) share.rounds ? store(work, place, group) : send(share, group);
      });
      if (lane == 0) ptx::tma_store_commit();
      parity ^= 1;
      const Share sent = share;
      for (int i = 0; i < kBuffers; ++i) place.advance(work);
      const bool goes_on = !place.is_behind(work);
      share = share_at(work, rows, place);
      if (lane == 0) ptx::tma_store_wait_read<0>();
      __syncwarp();  // barriers are for whole warps
      if (goes_on && !share.rounds) make_room(share);
      if constexpr (L::kInOrder) {
        if (!sent.rounds && lane == 0) pass_on(sent);
      }
      if (!goes_on) return;
      if (share.rounds) make_room(share);
    }
  }

 private:
  using Rows = SumsRows<L>;

  // Of a block's sums. In order, `number` thread blocks add theirs before, and where nobody does
  // after this one it rounds them.
  struct Share {
    int row;
    uint32_t number;
    bool rounds;
  };
  FLASH_DEVICE Share share_at(const Work& work, const Rows& rows, const Place& place) const {
    if constexpr (L::kInOrder) {
      return {rows.row(place), work.number(place.block), work.is_last(place.block)};
    }
    return {rows.row(place), 0, false};
  }

  // All lanes. Not __syncwarp(): ptxas no longer takes the tile for the same in all of them, and
  // spills.
  FLASH_DEVICE void meet() const { ptx::bar_sync(kSender + sender, 32); }

  FLASH_DEVICE int buffer() const { return kOfGroup ? 0 : sender; }
  // Whose sums it sends.
  template <typename Body>
  FLASH_DEVICE void for_each_group(Body&& body) const {
    if constexpr (kOfGroup) {
      body(sender);
    } else {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) body(group);
    }
  }

  // For the sums; with the others' sums, where nobody adds behind this one.
  FLASH_DEVICE void make_room(const Share& share) const {
    if constexpr (L::kInOrder) {
      if (lane == 0 && share.rounds && share.number > 0) bring(share);
      __syncwarp();
    }
    for_each_group([&](int group) { Handover<L>{smem, group, buffer()}.make_room(); });
  }

  // The group waits for them.
  FLASH_DEVICE void bring(const Share& share) const {
    await_turn(share);
    ptx::mbarrier_arrive_expect_tx(smem.sums_full(buffer()), kConfig.sums_bytes());
    ptx::bulk_load(smem.staging(buffer()), sums_of_row<kConfig>(args.call, share.row),
                   kConfig.sums_bytes(), smem.sums_full(buffer()));
  }

  FLASH_DEVICE void send(const Share& share, int group) const {
    const int offset = Sums::group_place(group);
    char* const to = reinterpret_cast<char*>(sums_of_row<kConfig>(args.call, share.row)) + offset;
    const uint32_t from = smem.staging(buffer()) + offset;
    if (L::kInOrder && share.number == 0) {
      ptx::bulk_store(to, from, Sums::group_bytes(group));
    } else {
      ptx::bulk_reduce_add_f32(to, from, Sums::group_bytes(group));
    }
  }

  FLASH_DEVICE void await_turn(const Share& share) const {
    turn(share).await();
    ptx::fence_proxy_async_global();  // others' sums, for the copy engine
  }
  FLASH_DEVICE void pass_on(const Share& share) const {
    ptx::tma_store_wait<0>();
    turn(share).pass_on();
  }
  FLASH_DEVICE sm90_bwd::SumsTurn turn(const Share& share) const {
    return {counters + share.row, share.number};
  }

  FLASH_DEVICE void store(const Work& work, const Place& place, int group) const {
    RoundedSums<kConfig>::store(
        smem.staging(buffer()), group, args.narrow, place.block * L::kColumns,
        static_cast<int>(work.head) * work.n_heads + place.head, static_cast<int>(work.batch));
  }
};

}  // namespace flash::sm90_bwd_fused
