#include "cluster.h"

#include <string.h>

#include <algorithm>

#include "collective.h"
#include "memory.h"
#include "sm90.h"

namespace emulator {

void Cluster::start(std::vector<Block*> blocks) {
  blocks_ = std::move(blocks);
  phase_ = arrived_ = missing_ = 0;
  waiting_.clear();
  arrived_seen_.assign(blocks_.size(), nullptr);
  completed_seen_.assign(blocks_.size(), nullptr);
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
  for (u32 rank = 0; rank < size(); ++rank) {
    if (arrived_seen_[rank] == nullptr) continue;
    Races& races = *blocks_[rank]->races;
    races.complete(arrived_seen_[rank]);
    if (completed_seen_[rank] != nullptr) races.drop(completed_seen_[rank]);
    completed_seen_[rank] = arrived_seen_[rank];
    arrived_seen_[rank] = nullptr;
  }
  blocks_[0]->counts.collectives[u32(Wait::kClusterBarrier)] += 1;
}

namespace {

// A lane of the same warp that has come to an aligned arrival before `lane` has; null: none.
const Lane* ahead_of(const Lane* lane) {
  const Lane* lanes = lane->warp->lanes;
  const Lane* end = lanes + __builtin_popcount(lane->warp->existing);
  const Lane* found = std::find_if(lanes, end, [&](const Lane& other) {
    return other.cluster_arrivals > lane->cluster_arrivals && other.cluster_site != 0;
  });
  return found != end ? found : nullptr;
}

// All threads of a warp execute the same instruction.
void check_alignment(Lane* lane, u32 site) {
  const Warp* warp = lane->warp;
  if (warp->alive != warp->existing) {
    fail(lane, ErrorKind::kDivergentCollective, site,
         "the thread is at barrier.cluster.arrive.aligned, but lanes 0x%08x of its warp have "
         "exited",
         warp->existing & ~warp->alive);
  }
  const Lane* other = ahead_of(lane);
  if (other == nullptr || other->cluster_site == site) return;
  fail(lane, ErrorKind::kDivergentCollective, site,
       "the thread is at barrier.cluster.arrive.aligned, while lane %u of its warp is at another, "
       "at {site:%u}",
       other->lane_id, other->cluster_site);
}

}  // namespace

void Cluster::arrive(Lane* lane, Ordering ordering, Alignment alignment, u32 site) {
  if (lane->cluster_arrivals != lane->cluster_waits) {
    fail(lane, ErrorKind::kDivergentCollective, site,
         "barrier.cluster.arrive by a thread that has not waited since it arrived last");
  }
  if (alignment == Alignment::kAligned) check_alignment(lane, site);
  lane->cluster_arrivals += 1;
  lane->cluster_site = alignment == Alignment::kAligned ? site : 0;
  if (lane->block->races != nullptr && ordering != Ordering::kRelaxed) {
    for (u32 rank = 0; rank < size(); ++rank) {
      Races& races = *blocks_[rank]->races;
      Seen*& into = arrived_seen_[rank];
      if (into == nullptr) into = races.copy_of(completed_seen_[rank]);
      races.join_neighbour(into, *lane);
    }
    lane->clock += 1;
    lane->barrier_site = site;
  }
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
  lane->block->sm90->knowledge.acquire(lane, completed_seen_[lane->block->rank], site);
}

void Cluster::check_exit(Lane* lane) const {
  const Lane* other = ahead_of(lane);
  if (other == nullptr) return;
  fail(lane, ErrorKind::kDivergentCollective, other->cluster_site,
       "the thread exits while lane %u of its warp is at barrier.cluster.arrive.aligned, which all "
       "lanes must execute",
       other->lane_id);
}

// An exit is an arrival.
void Cluster::exit_lane(const Lane* lane) {
  if (lane->cluster_arrivals > phase_) return;
  missing_ -= 1;
  complete_if_due();
}

void Cluster::check_copies_of(const Block* block) const {
  std::any_of(blocks_.begin(), blocks_.end(),
              [&](const Block* other) { return other->sm90->bulk.report_copy_of(block); });
}

// --- calls of translated kernels ---------------------------------------------------------------

void cluster_arrive(Lane* lane, Ordering ordering, Alignment alignment, u32 site) {
  lane->block->cluster->arrive(lane, ordering, alignment, site);
}

void cluster_wait(Lane* lane, u32 site) { lane->block->cluster->wait(lane, site); }

u32 map_to_rank(Lane* lane, u32 address, u32 rank, u32 site) {
  const Cluster& cluster = *lane->block->cluster;
  if (rank >= cluster.size()) {
    fail(lane, ErrorKind::kInvalidOperand, site, "mapa of block %u in a cluster of %u", rank,
         cluster.size());
  }
  return (address & kRankMask) | (rank + 1) << kRankShift;
}

Block* block_in_cluster(const Lane* lane, u32 address) {
  const u32 rank = address >> kRankShift;
  return rank == 0 ? lane->block : lane->block->cluster->block(rank - 1);
}

namespace {

void check_alive(Lane* lane, const char* what, const Block* to, u32 site) {
  if (to->alive != 0) return;
  fail(lane, ErrorKind::kOutOfBounds, site,
       "%s to the shared memory of block %u of the cluster, which has ended", what, to->rank);
}

// Where bytes go to that `what` brings.
Block* receiver_of(Lane* lane, const char* what, u32 address, u32 barrier, u32 site) {
  Block* to = block_in_cluster(lane, address);
  if (to == nullptr || to != block_in_cluster(lane, barrier)) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "%s to shared address 0x%x with the mbarrier at 0x%x: both must lie in one block of the "
         "cluster",
         what, address, barrier);
  }
  check_alive(lane, what, to, site);
  return to;
}

}  // namespace

void store_async(Lane* lane, u32 address, const u8* value, u32 bytes, u32 barrier, u32 site) {
  Block* to = receiver_of(lane, "st.async", address, barrier, site);
  to->sm90->bulk.store_word(lane, {address & kRankMask, bytes, bytes, barrier & kRankMask, site},
                            value);
}

void tensor_load_multicast(Lane* lane, u32 rank, u32 destination, u64 map, const s32* place,
                           u32 barrier, u32 blocks, u32 site) {
  const Cluster& cluster = *lane->block->cluster;
  if (blocks == 0 || blocks >> cluster.size() != 0) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "multicast to blocks 0x%x of a cluster of %u: a bit for each is needed", blocks,
         cluster.size());
  }
  const TensorMap& known = tensor_map(lane, map, rank, site);
  for (u32 to = 0; to < cluster.size(); ++to) {
    if ((blocks >> to & 1) == 0) continue;
    Block* block = cluster.block(to);
    check_alive(lane, "a multicast", block, site);
    block->sm90->bulk.load(lane, known, place, destination & kRankMask, barrier & kRankMask, site);
  }
}

void bulk_copy_in_cluster(Lane* lane, u32 destination, u32 source, u32 bytes, u32 barrier,
                          u32 site) {
  if (bytes % 16 != 0 || bytes == 0) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "cp.async.bulk of %u bytes between blocks of a cluster: a multiple of 16 is needed",
         bytes);
  }
  Block* to = receiver_of(lane, "cp.async.bulk", destination, barrier, site);
  to->sm90->bulk.copy_to_here(lane, {destination & kRankMask, bytes, 16, barrier & kRankMask, site},
                              source);
}

}  // namespace emulator
