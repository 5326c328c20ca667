#include "resident.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "memory.h"

namespace emulator {

namespace {

constexpr u64 kRuntimeStackBytes = 24 * 1024;  // for the calls that a kernel makes

u32 threads_of(const LaunchRequest& request) {
  return request.block[0] * request.block[1] * request.block[2];
}

}  // namespace

FiberStacks::FiberStacks(u32 count, u64 bytes)
    : page_(u64(sysconf(_SC_PAGESIZE))),
      stride_((bytes + kColours * kColourBytes + 2 * page_ - 1) / page_ * page_ + page_),
      total_(stride_ * count),
      base_(static_cast<u8*>(mmap(nullptr, total_, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  for (u32 index = 0; ok() && index < count; ++index) {
    mprotect(base_ + index * stride_, page_, PROT_NONE);
  }
}

FiberStacks::~FiberStacks() {
  if (ok()) munmap(base_, total_);
}

bool FiberStacks::ok() const { return base_ != MAP_FAILED; }

Resident::Resident(const LaunchRequest& request, GlobalShadow* shadow, bool alternates)
    : request_(request),
      lanes_(threads_of(request)),
      copies_(threads_of(request)),
      shared_(request.kernel->static_shared_bytes + request.dynamic_shared_bytes),
      stacks_(threads_of(request), request.kernel->stack_bytes + kRuntimeStackBytes) {
  block_.n_threads = threads_of(request);
  block_.n_warps = (block_.n_threads + kWarpSize - 1) / kWarpSize;
  block_.lanes = lanes_.data();
  block_.schedule.order = Order{request.order};
  std::copy_n(request.block, 3, block_.position.ntid);
  std::copy_n(request.grid, 3, block_.position.nctaid);
  block_.position.cluster = request.cluster;
  block_.ranges = {request.ranges, request.n_ranges};
  block_.entry = request.kernel->entry;
  if (request.traffic) traffic_.emplace(*request.traffic, block_.n_threads);
  const bool uses_sm90 = request.kernel->uses_sm90 != 0;
  const u32 shared_bytes = u32(shared_.size());
  if (shadow != nullptr) {
    races_ = std::make_unique<Races>(&block_, shadow, shared_bytes, uses_sm90 ? kMaxAgents : 0,
                                     request.cluster);
  }
  block_.races = races_.get();
  if (uses_sm90) {
    sm90_ = std::make_unique<Sm90>(&block_, shared_bytes, request.early_loads != 0,
                                   request.ordered_sums != 0, request.warps_meet != 0);
  }
  block_.sm90 = sm90_.get();
  const bool preempted = block_.schedule.order == Order::kRandom;
  watch_ = (races_ ? kWatchRaces : 0) | (preempted ? kWatchSchedule : 0) |
           (alternates ? kWatchBlocks : 0);
}

void Resident::start_lane(u32 thread) {
  static constexpr GlobalRange kNoRange{};
  Lane& lane = lanes_[thread] = Lane{};
  lane.shared = shared_.data();
  lane.shared_bytes = u32(shared_.size());
  lane.params = request_.params;
  lane.recent_range = &kNoRange;
  lane.awaits_grids = request_.kernel->begins_early != 0;
  lane.watch = watch_;
  lane.branch_budget = s64(request_.max_backward_branches);
  lane.lane_id = thread % kWarpSize;
  lane.warp_id = thread / kWarpSize;
  lane.n_warps = block_.n_warps;
  lane.tid[0] = thread % request_.block[0];
  lane.tid[1] = thread / request_.block[0] % request_.block[1];
  lane.tid[2] = thread / request_.block[0] / request_.block[1];
  lane.warp = &block_.warps[thread / kWarpSize];
  lane.block = &block_;
  lane.position = &block_.position;
  lane.copies = &copies_[thread];
  lane.traffic = traffic_ ? &*traffic_ : nullptr;
  lane.executions = traffic_ ? traffic_->executions_of(thread) : nullptr;
  emulator::start_lane(&lane, stacks_.bottom(thread), stacks_.bytes(thread));
}

void Resident::start(u64 index) {
  index_ = index;
  copies_.assign(block_.n_threads, AsyncCopies{});
  std::fill(shared_.begin(), shared_.end(), u8{0xFF});
  block_.schedule.state = request_.seed + index * 0xD1342543DE82EF95u;
  block_.schedule.until_preemption = 1;
  for (u32 thread = 0; thread < block_.n_threads; ++thread) start_lane(thread);
  if (races_) races_->start_block(index);
  if (sm90_) sm90_->start_block();
  if (sm90_) own_cluster_.start({&block_});
  const u32* grid = request_.grid;
  const u32 ctaid[3] = {u32(index % grid[0]), u32(index / grid[0] % grid[1]),
                        u32(index / grid[0] / grid[1])};
  start_block(&block_, ctaid);
}

bool Resident::run() {
  const bool ended = run_block(&block_);
  if (races_) races_->settle();
  for (u32 warp = 0; ended && traffic_ && warp < block_.n_warps; ++warp) {
    traffic_->flush(block_.warps[warp]);
  }
  return ended;
}

Counts Resident::take_counts() {
  Counts counts = block_.counts;
  for (const Lane& lane : lanes_) {
    counts.global_loads += lane.global_loads;
    counts.global_stores += lane.global_stores;
  }
  block_.counts = Counts{};
  return counts;
}

ErrorRecord Resident::take_error() {
  const ErrorRecord error = block_.error;
  block_.error.kind = ErrorKind::kNone;
  return error;
}

void Resident::add_to(LaunchResult& result) const {
  if (traffic_) traffic_->add_to_request();
  if (races_) result.races.merge(races_->table);
}

}  // namespace emulator
