// Tiles of pairs of thread blocks: 128 keys of a head each. As many pairs as fit the GPU stay, and
// take tile after tile.
//
// A counter in global memory gives out the places of the grid's order, one after the other. So
// whoever waits for an earlier place waits for a pair that has begun, whatever else runs on the
// GPU. One thread of each thread block draws, as soon as all of the tile before has been loaded,
// and not earlier, lest others wait for a tile that nobody works on: that of the pair's first asks
// the counter, and the copy engine hands on the answer to the second.
#pragma once

#include "flash/ptx/cluster.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_bwd_cluster/args.h"
#include "flash/sm90_bwd_cluster/layout.cuh"

namespace flash::sm90_bwd_cluster {

// Behind the sums of dQ, and the counters there.
template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE uint32_t* tile_counter(const BackwardKernelArgs& args) {
  const int64_t rows = int64_t{args.sections.n_heads} * args.sections.rows_of_head;
  return reinterpret_cast<uint32_t*>(args.call.d_q_sums + rows * kConfig.d_head) + rows - 1;
}

// By the kernel before.
template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE void clear_tile_counter(const BackwardKernelArgs& args) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *tile_counter<kConfig>(args) = 0;
}

// The next one, when everybody has what he needs of the one before: one thread of each thread
// block. `parity`: of "empty".
template <ClusterBackwardKernelConfig kConfig, bool kIsFirst>
FLASH_DEVICE void draw_tile(const BackwardKernelArgs& args, const Layout<kConfig>& smem,
                            uint32_t parity) {
  using Work = PairWork<kConfig>;
  constexpr int kBytes = Layout<kConfig>::kTileBytes;
  while (!kIsFirst && !ptx::mbarrier_try_acquire(smem.tile_empty(), parity)) {
  }
  const uint32_t rank = ptx::cluster_rank();
  if (rank != 0) {
    ptx::mbarrier_arrive_expect_tx(smem.tile_full(), kBytes);
    if (!kIsFirst) ptx::mbarrier_release_at_peer(ptx::peer_address(smem.tile_empty(), rank ^ 1));
    return;
  }
  const unsigned place = atomicAdd(tile_counter<kConfig>(args), 1u);
  const bool some = place < Work::n_tiles(args.call);
  const OwnTile tile = some ? Work::tile(args.call, place) : OwnTile{0, 0, PairTile::kNone};
  ptx::st_shared_16<0>(smem.tile(), {{tile.batch, tile.head, tile.block, place}});
  ptx::fence_proxy_async_shared();  // for the copy engine
  ptx::bulk_copy_to_peer(ptx::peer_address(smem.tile(), rank ^ 1), smem.tile(), kBytes,
                         ptx::peer_address(smem.tile_full(), rank ^ 1));
  ptx::mbarrier_arrive(smem.tile_full());
}

// The tile that lies there.
template <typename L>
FLASH_DEVICE PairTile drawn_tile(const L& smem) {
  const ptx::Vector16 words = ptx::ld_shared_16<0>(smem.tile());
  return {{.batch = words.word[0], .head = words.word[1], .block = words.word[2]}, words.word[3]};
}

// The phases of barriers: of those that are over once a tile, and of turns to add to sums.
struct TileParity {
  uint32_t of_tile = 0;
  uint32_t of_turn = 0;
};

// A warp has no registers for it: its own copy lies in shared memory, with TileParity in its last
// bits. All lanes read that. What they read comes from lane 0, or the compiler does not know that
// it is the same in all lanes, nor what they do for a tile. Of the tile itself lane 0, which says
// when it has been read, is the only reader: racecheck follows an mbarrier in such threads alone.
template <typename L>
struct WarpTile {
  const L& smem;

  // The next one. Whether it exists.
  FLASH_DEVICE bool take(uint32_t kept, int lane, const TileParity& parity) const {
    sm90::wait_phase(smem.tile_full(), parity.of_tile);
    uint32_t block = 0;
    if (lane == 0) {
      ptx::Vector16 words = ptx::ld_shared_16<0>(smem.tile());
      block = words.word[2];
      words.word[3] = words.word[3] << 2 | parity.of_turn << 1 | parity.of_tile;
      ptx::st_shared_16<0>(kept, words);
    }
    __syncwarp();  // all lanes have seen that it is there, and see the copy
    if (lane == 0) ptx::mbarrier_arrive(smem.tile_empty());
    return uniform(block) != PairTile::kNone;
  }
  FLASH_DEVICE static PairTile get(uint32_t kept) {
    const ptx::Vector16 words = ptx::ld_shared_16<0>(kept);
    return {{.batch = uniform(words.word[0]),
             .head = uniform(words.word[1]),
             .block = uniform(words.word[2])},
            uniform(words.word[3]) >> 2};
  }
  // By any of the lanes.
  FLASH_DEVICE static unsigned place(uint32_t kept) {
    return ptx::ld_shared_16<0>(kept).word[3] >> 2;
  }
  FLASH_DEVICE static TileParity parity(uint32_t kept) {
    const uint32_t word = uniform(ptx::ld_shared_16<0>(kept).word[3]);
    return {.of_tile = word & 1, .of_turn = word >> 1 & 1};
  }

 private:
  FLASH_DEVICE static uint32_t uniform(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }
};

}  // namespace flash::sm90_bwd_cluster
