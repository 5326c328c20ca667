// Transaction barriers as translated kernels call them.
#include "cluster.h"
#include "collective.h"
#include "sm90.h"

namespace emulator {

void mbarrier_init(Lane* lane, u32 address, u32 count, u32 site) {
  lane->block->sm90->mbarriers.init(lane, address, count, site);
}

void mbarrier_inval(Lane* lane, u32 address, u32 site) {
  lane->block->sm90->mbarriers.inval(lane, address, site);
}

void mbarrier_expect_tx(Lane* lane, u32 address, u32 bytes, u32 site) {
  Mbarriers& barriers = lane->block->sm90->mbarriers;
  Mbarrier& barrier = barriers.use(lane, address, site);
  if (barriers.add_transactions(lane->block, barrier, bytes)) return;
  fail(lane, ErrorKind::kMbarrier, site, "%lld bytes announced: an mbarrier counts to %u",
       static_cast<long long>(barrier.tx), kMaxMbarrierCount);
}

void mbarrier_complete_tx(Lane* lane, u32 address, u32 bytes, u32 site) {
  Mbarriers& barriers = lane->block->sm90->mbarriers;
  if (barriers.add_transactions(lane->block, barriers.use(lane, address, site), -s64{bytes})) {
    return;
  }
  fail(lane, ErrorKind::kMbarrier, site, "more than %u bytes completed that nobody announced",
       kMaxMbarrierCount);
}

u64 mbarrier_arrive(Lane* lane, u32 address, u32 count, u32 expected_bytes, Ordering ordering,
                    u32 site) {
  Sm90* sm90 = lane->block->sm90;
  u64 state =
      sm90->mbarriers.arrive(lane, lane->block, address, count, expected_bytes, ordering, site);
  sm90->bulk.surprise(lane);
  return state;
}

void mbarrier_arrive_in_cluster(Lane* lane, u32 address, u32 count, u32 expected_bytes,
                                Ordering ordering, u32 site) {
  Block* to = block_in_cluster(lane, address);
  if (to == nullptr) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "mbarrier.arrive at shared address 0x%x, which no block of the cluster has", address);
  }
  if (to->alive == 0) {
    fail(lane, ErrorKind::kOutOfBounds, site,
         "mbarrier.arrive in the shared memory of block %u of the cluster, which has ended",
         to->rank);
  }
  to->sm90->mbarriers.arrive(lane, to, address & kRankMask, count, expected_bytes, ordering, site);
  lane->block->sm90->bulk.surprise(lane);
}

bool mbarrier_wait_parity(Lane* lane, u32 address, u32 parity, Ordering ordering, u32 site) {
  return lane->block->sm90->mbarriers.wait(lane, address, parity, true, ordering, site);
}

bool mbarrier_wait_state(Lane* lane, u32 address, u64 state, Ordering ordering, u32 site) {
  return lane->block->sm90->mbarriers.wait(lane, address, state, false, ordering, site);
}

void fence_mbarrier_init(Lane* lane) { lane->block->sm90->mbarriers.show_to_cluster(lane); }

}  // namespace emulator
