// The way of dQ out of shared memory: two warps of the producer's warpgroup have the copy engine
// add what the consumer groups have staged.
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
#include "flash/sm90_bwd_fused/args.h"
#include "flash/sm90_bwd_fused/named_barriers.h"
#include "flash/sm90_bwd_fused/query_sums.cuh"
#include "flash/sm90_bwd_fused/sums_order.cuh"

namespace flash::sm90_bwd_fused {

// Between a group and its sender, about one buffer. With barriers of its own each buffer is told of
// only when the sender has learned what it was told of it before.
struct Handover {
  static constexpr int kThreads = sm90_bwd::HopperBackwardKernelConfig::kGroupThreads + 32;

  const int group;
  const int buffer;

  // The group: there is room; all sums are written, and fenced.
  FLASH_DEVICE void await_room() const { ptx::bar_sync(id(kRoom), kThreads); }
  FLASH_DEVICE void staged() const { ptx::bar_arrive(id(kStaged), kThreads); }
  // The sender, likewise.
  FLASH_DEVICE void make_room() const { ptx::bar_arrive(id(kRoom), kThreads); }
  FLASH_DEVICE void await_sums() const { ptx::bar_sync(id(kStaged), kThreads); }

 private:
  FLASH_DEVICE int id(NamedBarrier first) const { return first + 2 * buffer + group; }
};

// A group's side: the buffer that comes next, and whether one has been filled before, of a tile.
struct StagedSums {
  const int group;
  int buffer = 0;
  bool some = false;

  FLASH_DEVICE void await_room() const { Handover{group, buffer}.await_room(); }
  FLASH_DEVICE void begin_tile() {
    buffer = 0;
    some = false;
  }
  FLASH_DEVICE void filled() {
    buffer ^= 1;
    some = true;
  }
  // Behind a fence: what was filled last.
  FLASH_DEVICE void hand_over() const {
    if (some) Handover{group, buffer ^ 1}.staged();
  }
  FLASH_DEVICE void fence_and_hand_over() const {
    ptx::fence_proxy_async_shared();
    hand_over();
  }
};

// One for each buffer, so that each has two steps' time.
template <FusedBackwardKernelConfig kConfig, typename L>
struct SumsSender {
  static constexpr int kGroups = FusedBackwardKernelConfig::kGroups;
  static constexpr int kBuffers = FusedBackwardKernelConfig::kStagingBuffers;
  using Sums = QuerySums<kConfig>;

  const BackwardArgs& call;
  const L& smem;
  const typename L::Work& work;
  const int buffer;
  const int lane;

  // All lanes.
  FLASH_DEVICE void run() const {
    const int n_steps = work.n_steps();
    Place place{work.first, 0};
    if (buffer < n_steps) make_room();
    if (buffer > 0) place.advance(work);
#pragma unroll 1
    for (int step = buffer; step < n_steps; step += kBuffers) {
      if constexpr (L::kInOrder) {
        if (lane == 0) await_turn(place);
      }
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        Handover{group, buffer}.await_sums();
        if (lane == 0) send(place, group);
      }
      if (lane == 0) {
        ptx::tma_store_commit();
        ptx::tma_store_wait_read<0>();
      }
      __syncwarp();  // barriers are for whole warps
      if (step + kBuffers < n_steps) make_room();
      if constexpr (L::kInOrder) {
        if (lane == 0) pass_on(place);
      }
      for (int i = 0; i < kBuffers; ++i) place.advance(work);
    }
  }

 private:
  FLASH_DEVICE void make_room() const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) Handover{group, buffer}.make_room();
  }

  FLASH_DEVICE void send(const Place& place, int group) const {
    const int offset = Sums::group_place(group);
    char* const to = reinterpret_cast<char*>(sums_of_block<kConfig, L>(call, work, place)) + offset;
    const uint32_t from = smem.staging(buffer) + offset;
    bool is_first = false;
    if constexpr (L::kInOrder) is_first = turn(place).is_first();
    if (is_first) {
      ptx::bulk_store(to, from, Sums::group_bytes(group));
    } else {
      ptx::bulk_reduce_add_f32(to, from, Sums::group_bytes(group));
    }
  }

  FLASH_DEVICE void await_turn(const Place& place) const {
    turn(place).await();
    ptx::fence_proxy_async_global();  // others' sums, for the copy engine
  }
  FLASH_DEVICE void pass_on(const Place& place) const {
    ptx::tma_store_wait<0>();
    turn(place).pass_on();
  }

  FLASH_DEVICE SumsTurn turn(const Place& place) const {
    return {order_counters<kConfig>(call) + sums_row<L>(call, work, place),
            work.number(place.block)};
  }
};

}  // namespace flash::sm90_bwd_fused
