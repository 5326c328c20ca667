#include "cluster.h"

#include <string.h>

#include "collective.h"
#include "memory.h"
#include "sm90.h"

namespace emulator {

void Cluster::start(std::vector<Block*> blocks) {
  blocks_ = std::move(blocks);
  phase_ = arrived_ = missing_ = 0;
  waiting_.clear();
  for (u32 rank = 0; rank < size(); ++rank) {
    blocks_[rank]->cluster = this;
    blocks_[rank]->rank = rank;
    missing_ += blocks_[rank]->n_threads;
  }
}

void Cluster::complete_if_due() {
  if (missing_ != 0 || arrived_ == 0) return;
  phase_ += 1;
  arrived_ = 0;
  for (const Block* block : blocks_) missing_ += block->alive;
  for (Lane* lane : waiting_) make_runnable(lane->warp, 1u << lane->lane_id);
  waiting_.clear();
  blocks_[0]->counts.collectives[u32(Wait::kClusterBarrier)] += 1;
}

void Cluster::arrive(Lane* lane, u32 site) {
  if (lane->cluster_arrivals != lane->cluster_waits) {
    fail(lane, ErrorKind::kDivergentCollective, site,
         "barrier.cluster.arrive by a thread that has not waited since it arrived last");
  }
  lane->cluster_arrivals += 1;
  arrived_ += 1;
  missing_ -= 1;
  complete_if_due();
}

void Cluster::wait(Lane* lane, u32 site) {
  if (lane->cluster_arrivals == lane->cluster_waits) {
    fail(lane, ErrorKind::kDivergentCollective, site,
         "barrier.cluster.wait by a thread that has not arrived");
  }
  if (phase_ < lane->cluster_arrivals) {
    lane->wait = Wait::kClusterBarrier;
    lane->wait_site = site;
    lane->wait_detail = lane->cluster_arrivals;
    waiting_.push_back(lane);
    emulator::wait(lane);
  }
  lane->cluster_waits += 1;
}

// An exit is an arrival.
void Cluster::exit_lane(const Lane* lane) {
  if (lane->cluster_arrivals > phase_) return;
  missing_ -= 1;
  complete_if_due();
}

// --- calls of translated kernels ---------------------------------------------------------------

void cluster_arrive(Lane* lane, u32 site) { lane->block->cluster->arrive(lane, site); }

void cluster_wait(Lane* lane, u32 site) { lane->block->cluster->wait(lane, site); }

u32 map_to_rank(Lane* lane, u32 address, u32 rank, u32 site) {
  const Cluster& cluster = *lane->block->cluster;
  if (rank >= cluster.size()) {
    fail(lane, ErrorKind::kInvalidOperand, site, "mapa of block %u in a cluster of %u", rank,
         cluster.size());
  }
  return (address & ((1u << kRankShift) - 1)) | (rank + 1) << kRankShift;
}

namespace {

// The block that an address of the cluster lies in, its own where it has no rank.
Block* block_of(const Lane* lane, u32 address) {
  const u32 rank = address >> kRankShift;
  return rank == 0 ? lane->block : lane->block->cluster->block(rank - 1);
}

}  // namespace

void store_async(Lane* lane, u32 address, const u8* value, u32 bytes, u32 barrier, u32 site) {
  Block* to = block_of(lane, address);
  if (to == nullptr || to != block_of(lane, barrier)) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "st.async to shared address 0x%x with the mbarrier at 0x%x: both must lie in one block of "
         "the cluster",
         address, barrier);
  }
  if (to->alive == 0) {
    fail(lane, ErrorKind::kOutOfBounds, site,
         "st.async to the shared memory of block %u of the cluster, which has ended", to->rank);
  }
  const u32 mask = (1u << kRankShift) - 1;
  to->sm90->bulk.store_word(lane, address & mask, value, bytes, barrier & mask, site);
}

}  // namespace emulator
