// A launch: thread blocks in order of their index, spread over OS threads.
//
// Blocks start in ascending order and a failure stops only later ones, so the error that is
// reported is always that of the lowest failing block, however many workers there are.
#include "launch.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "async_copies.h"
#include "memory.h"
#include "sm90.h"

namespace emulator {

namespace {

constexpr u64 kRuntimeStackBytes = 24 * 1024;  // for the calls that a kernel makes

// Stacks of one worker's fibers, each above an inaccessible page. The start within the last page
// is different for neighbours: equal offsets would compete for the same cache sets.
class FiberStacks {
 public:
  FiberStacks(u32 count, u64 bytes)
      : page_(u64(sysconf(_SC_PAGESIZE))),
        stride_((bytes + kColours * kColourBytes + 2 * page_ - 1) / page_ * page_ + page_),
        total_(stride_ * count) {
    void* memory = mmap(nullptr, total_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    base_ = memory == MAP_FAILED ? nullptr : static_cast<u8*>(memory);
    for (u32 index = 0; base_ && index < count; ++index) {
      mprotect(base_ + index * stride_, page_, PROT_NONE);
    }
  }
  ~FiberStacks() {
    if (base_) munmap(base_, total_);
  }
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  bool ok() const { return base_ != nullptr; }
  u8* bottom(u32 index) const { return base_ + index * stride_ + page_; }
  u64 bytes(u32 index) const { return stride_ - page_ - u64{index % kColours} * kColourBytes; }

 private:
  static constexpr u64 kColours = 16;
  static constexpr u64 kColourBytes = 5 * 64;
  u64 page_;
  u64 stride_;
  u64 total_;
  u8* base_;
};

class Launch {
 public:
  Launch(const LaunchRequest& request, LaunchResult& result)
      : request_(request),
        result_(result),
        n_blocks_(u64{request.grid[0]} * request.grid[1] * request.grid[2]) {
    if (request.finds_races == 0) return;
    shadow_ = std::make_unique<GlobalShadow>(*request.kernel, request.ranges, request.n_ranges);
  }

  void run() {
    u64 workers = std::clamp<u64>(request_.n_workers, 1, n_blocks_);
    std::vector<std::thread> threads;
    for (u64 index = 1; index < workers; ++index) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void work();
  void init_block(Block& block);
  void init_lanes(Block& block, std::vector<Lane>& lanes, std::vector<AsyncCopies>& copies,
                  std::vector<u8>& shared, Traffic* traffic);
  void finish_block(Block& block, u64 index);

  const LaunchRequest& request_;
  LaunchResult& result_;
  const u64 n_blocks_;
  std::unique_ptr<GlobalShadow> shadow_;  // null: no race detector
  std::atomic<u64> next_block_{0};
  std::atomic<u64> first_failure_{~u64{0}};
  std::mutex result_mutex_;
};

void Launch::init_block(Block& block) {
  const u32* size = request_.block;
  block.n_threads = size[0] * size[1] * size[2];
  block.n_warps = (block.n_threads + kWarpSize - 1) / kWarpSize;
  block.schedule.order = Order{request_.order};
  std::copy_n(size, 3, block.position.ntid);
  std::copy_n(request_.grid, 3, block.position.nctaid);
  block.ranges = {request_.ranges, request_.n_ranges};
  block.entry = request_.kernel->entry;
}

void Launch::init_lanes(Block& block, std::vector<Lane>& lanes, std::vector<AsyncCopies>& copies,
                        std::vector<u8>& shared, Traffic* traffic) {
  static constexpr GlobalRange kNoRange{};
  block.lanes = lanes.data();
  for (u32 thread = 0; thread < block.n_threads; ++thread) {
    Lane& lane = lanes[thread];
    lane = Lane{};
    lane.shared = shared.data();
    lane.shared_bytes = u32(shared.size());
    lane.params = request_.params;
    lane.recent_range = &kNoRange;
    lane.watch = (block.races ? kWatchRaces : 0) |
                 (block.schedule.order == Order::kRandom ? kWatchSchedule : 0);
    lane.branch_budget = s64(request_.max_backward_branches);
    lane.lane_id = thread % kWarpSize;
    lane.warp_id = thread / kWarpSize;
    lane.n_warps = block.n_warps;
    lane.tid[0] = thread % request_.block[0];
    lane.tid[1] = thread / request_.block[0] % request_.block[1];
    lane.tid[2] = thread / request_.block[0] / request_.block[1];
    lane.warp = &block.warps[thread / kWarpSize];
    lane.block = &block;
    lane.position = &block.position;
    copies[thread] = AsyncCopies{};
    lane.copies = &copies[thread];
    lane.traffic = traffic;
    if (traffic) lane.executions = traffic->executions_of(thread);
  }
}

void Launch::work() {
  auto block = std::make_unique<Block>();
  init_block(*block);
  std::vector<Lane> lanes(block->n_threads);
  std::vector<AsyncCopies> copies(block->n_threads);
  std::optional<Traffic> traffic;
  if (request_.traffic) traffic.emplace(*request_.traffic, block->n_threads);
  std::vector<u8> shared(request_.kernel->static_shared_bytes + request_.dynamic_shared_bytes);
  std::unique_ptr<Races> races;
  const bool uses_sm90 = request_.kernel->uses_sm90 != 0;
  if (shadow_) {
    races = std::make_unique<Races>(block.get(), shadow_.get(), u32(shared.size()),
                                    uses_sm90 ? kMaxAgents : 0);
  }
  block->races = races.get();
  std::unique_ptr<Sm90> sm90;
  if (uses_sm90) {
    sm90 = std::make_unique<Sm90>(block.get(), u32(shared.size()), request_.early_loads != 0);
  }
  block->sm90 = sm90.get();
  FiberStacks stacks(block->n_threads, request_.kernel->stack_bytes + kRuntimeStackBytes);
  if (!stacks.ok()) {
    block->error.kind = ErrorKind::kInvalidLaunch;
    strcpy(block->error.message, "no memory for the stacks of the thread block");
    return finish_block(*block, next_block_++);
  }
  for (u64 index; (index = next_block_++) < std::min<u64>(n_blocks_, first_failure_);) {
    init_lanes(*block, lanes, copies, shared, traffic ? &*traffic : nullptr);
    std::fill(shared.begin(), shared.end(), u8{0xFF});
    if (races) races->start_block(index);
    if (sm90) sm90->start_block();
    block->schedule.state = request_.seed + index * 0xD1342543DE82EF95u;
    block->schedule.until_preemption = 1;
    for (u32 thread = 0; thread < block->n_threads; ++thread) {
      start_lane(&lanes[thread], stacks.bottom(thread), stacks.bytes(thread));
    }
    const u32* grid = request_.grid;
    const u32 ctaid[3] = {u32(index % grid[0]), u32(index / grid[0] % grid[1]),
                          u32(index / grid[0] / grid[1])};
    run_block(block.get(), ctaid);
    if (races) races->settle();
    for (u32 warp = 0; traffic && warp < block->n_warps; ++warp) traffic->flush(block->warps[warp]);
    finish_block(*block, index);
  }
  std::lock_guard lock(result_mutex_);
  if (traffic) traffic->add_to_request();
  if (races) result_.races.merge(races->table);
}

void Launch::finish_block(Block& block, u64 index) {
  std::lock_guard lock(result_mutex_);
  for (u32 kind = 0; kind < u32(Wait::kCount); ++kind) {
    result_.counts.collectives[kind] += block.counts.collectives[kind];
  }
  result_.counts.mma_instructions += block.counts.mma_instructions;
  result_.counts.async_copies += block.counts.async_copies;
  result_.blocks_run += 1;
  block.counts = Counts{};
  if (block.error.kind == ErrorKind::kNone) return;
  if (index < first_failure_) {
    first_failure_ = index;
    result_.error = block.error;
    result_.error.block_index = index;
  }
  block.error.kind = ErrorKind::kNone;
}

}  // namespace

extern "C" void emulator_launch(const LaunchRequest* request, LaunchResult* result) {
  *result = LaunchResult{};
  Launch(*request, *result).run();
}

}  // namespace emulator
