// Tiles of thread blocks that stay, one on each multiprocessor: 128 keys of a head each.
//
// A counter in global memory gives the places of their order (flash/tile/ordered_tiles.cuh,
// split_work.cuh) to those that ask, one after the other. So whoever waits for an earlier place
// waits for a thread block that has begun, whatever else runs on the GPU. A thread that has nothing
// else to do asks as soon as all of the tile before has been loaded, and not earlier, lest others
// wait for a tile that nobody works on.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_bwd/producer.cuh"
#include "flash/sm90_bwd_fused/args.h"
#include "flash/sm90_bwd_fused/sums_order.cuh"

namespace flash::sm90_bwd_fused {

// In place of a tile's block: none is left.
constexpr unsigned kNoTile = ~0u;

// Puts tiles into shared memory.
template <FusedBackwardKernelConfig kConfig, typename L>
FLASH_DEVICE void draw_tiles(const BackwardArgs& call, const L& smem) {
  const auto grid = L::Work::grid(call);
  uint32_t parity = 1;
  for (bool some = true; some; parity ^= 1) {
    sm90::wait_phase(smem.tile_empty(), parity);
    const unsigned place = atomicAdd(tile_counter<kConfig>(call), 1u);
    some = place < grid.n_tiles();
    const OwnTile tile = some ? grid.tile(place) : OwnTile{0, 0, kNoTile};
    ptx::st_shared_16<0>(smem.tile(), {{tile.batch, tile.head, tile.block, 0}});
    ptx::mbarrier_arrive(smem.tile_full());
  }
}

// What everybody else reads.
FLASH_DEVICE OwnTile tile_of(const ptx::Vector16& words) {
  return {.batch = words.word[0], .head = words.word[1], .block = words.word[2]};
}

// A warp's own copy of the tile it works on, with the parity of its "full" in the last bit, and in
// order one more for each staging buffer: in shared memory, as warps that multiply, and that send,
// have no registers for them.
template <typename L>
struct WarpTile {
  const L& smem;
  const uint32_t place;
  const int lane;
  uint32_t parity = 1;

  FLASH_DEVICE WarpTile(const L& layout, uint32_t kept, int own_lane)
      : smem(layout), place(kept), lane(own_lane) {
    if (L::kInOrder && lane == 0) ptx::st_shared_16<0>(place, {});
  }

  // Takes the next one: all lanes.
  FLASH_DEVICE void take() {
    parity ^= 1;
    sm90::wait_phase(smem.tile_full(), parity);
    if (lane == 0) {
      ptx::Vector16 words = ptx::ld_shared_16<0>(smem.tile());
      words.word[3] = parity;
      if constexpr (L::kInOrder) words.word[3] |= this->words().word[3] & ~1u;
      ptx::st_shared_16<0>(place, words);
    }
    __syncwarp();  // all lanes have seen that it is there, and see the copy
    if (lane == 0) ptx::mbarrier_arrive(smem.tile_empty());
  }
  // What it took last.
  FLASH_DEVICE OwnTile get() const { return tile_of(words()); }
  // Before the next one is taken.
  FLASH_DEVICE void recall_parity() {
    parity = words().word[3] & 1;
    __syncwarp();  // all lanes have read what is taken in its place
  }
  // The parity of "full" for what is brought next into a staging buffer; what comes after that has
  // the other one.
  FLASH_DEVICE uint32_t next_parity(int buffer) const {
    const uint32_t word = ptx::ld_shared_4(place + 12);
    __syncwarp();  // all lanes have read it
    if (lane == 0) ptx::st_shared_4<12>(place, word ^ 2u << buffer);
    return word >> (1 + buffer) & 1;
  }

 private:
  FLASH_DEVICE ptx::Vector16 words() const { return ptx::ld_shared_16<0>(place); }
};

// Loads all tiles of a thread block: one thread. The first block of queries comes before the keys,
// whose place is free only when all of the tile before has been multiplied.
template <typename L>
FLASH_DEVICE void load_tiles(const BackwardKernelArgs& args, const L& smem) {
  sm90_bwd::Producer<L, typename L::Work> loads{args, smem};
  for (uint32_t parity = 0;; parity ^= 1) {
    sm90::wait_phase(smem.tile_full(), parity);
    const OwnTile tile = tile_of(ptx::ld_shared_16<0>(smem.tile()));
    if (tile.block == kNoTile) return;
    const typename L::Work work(args.call, tile);
    Place place{work.first, 0};
    loads.load_other1(work, place);
    loads.load_other2(work, place);
    sm90::wait_phase(smem.own1_empty(), parity ^ 1);
    loads.load_own1(work);
    sm90::wait_phase(smem.own2_empty(), parity ^ 1);
    loads.load_own2(work);
    const int n_steps = work.n_steps();
    for (int step = 1; step < n_steps; ++step) {
      place.advance(work);
      loads.load_other1(work, place);
      loads.load_other2(work, place);
    }
    ptx::mbarrier_arrive(smem.tile_empty());
  }
}

}  // namespace flash::sm90_bwd_fused
