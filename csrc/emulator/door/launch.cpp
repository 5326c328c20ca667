// A launch: thread blocks in order of their index, spread over OS threads.
//
// Blocks start in ascending order and a failure stops only later ones, so the error that is
// reported is always that of the lowest failing block, however many workers there are. Blocks that
// may talk to each other, through atomic updates or flags in global memory, take turns on one
// worker, several at a time, and the first failure ends the launch.
#include "launch.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "resident.h"

namespace emulator {

namespace {

constexpr u64 kMaxResidents = 24;  // blocks that take turns
// Of each thread, until something lands: all may be asking for what others do when it has landed.
constexpr u64 kMostPauses = 16;

// Those that could go on.
u64 threads_that_run(const std::vector<Resident*>& residents) {
  u64 found = 0;
  for (Resident* resident : residents) {
    const Block* block = resident->block();
    for (u32 warp = 0; warp < block->n_warps; ++warp) {
      found += u64(__builtin_popcount(block->warps[warp].runnable));
    }
  }
  return found;
}

class Launch {
 public:
  Launch(const LaunchRequest& request, LaunchResult& result)
      : request_(request),
        result_(result),
        n_blocks_(u64{request.grid[0]} * request.grid[1] * request.grid[2]),
        alternates_(request.kernel->uses_global_atomics != 0 ||
                    request.kernel->orders_blocks != 0) {
    schedule_.order = Order{request.order};
    schedule_.state = request.seed;
    if (request.finds_races == 0) return;
    shadow_ = std::make_unique<GlobalShadow>(*request.kernel, request.ranges, request.n_ranges);
  }

  void run() {
    if (alternates_) return take_turns();
    std::vector<std::thread> threads;
    for (u64 left = std::clamp<u64>(request_.n_workers, 1, n_blocks_); --left != 0;) {
      threads.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  using Residents = std::vector<std::unique_ptr<Resident>>;
  // Where the blocks of a cluster run, by rank; a block in no cluster is one by itself.
  struct Team {
    Residents residents;
    std::vector<Resident*> left;  // that have not ended
    u64 turn;                     // whose it is
    u64 pauses;                   // since a copy landed so that threads that ask again could end
    Cluster cluster;
  };

  std::unique_ptr<Team> make_team();
  void start(Team& team, u64 index);
  bool run(Team& team);
  void work();
  void take_turns();
  Resident* make_resident(Residents& residents);
  u64 next_turn(u64 last, u64 n_running);
  void finish_block(Resident& resident);
  void fail(u64 index, const ErrorRecord& error);

  const LaunchRequest& request_;
  LaunchResult& result_;
  const u64 n_blocks_;
  const bool alternates_;
  Schedule schedule_{};                   // of blocks that take turns
  std::unique_ptr<GlobalShadow> shadow_;  // null: no race detector
  std::atomic<u64> next_cluster_{0};
  std::atomic<u64> first_failure_{~u64{0}};
  std::mutex result_mutex_;
};

// Null, and the launch has failed, where there is no memory.
Resident* Launch::make_resident(Residents& residents) {
  auto made = std::make_unique<Resident>(request_, shadow_.get(), alternates_);
  if (made->ok()) return residents.emplace_back(std::move(made)).get();
  ErrorRecord error{};
  error.kind = ErrorKind::kInvalidLaunch;
  strcpy(error.message, "no memory for the stacks of the thread block");
  std::lock_guard lock(result_mutex_);
  fail(next_cluster_++, error);
  return nullptr;
}

// Null, and the launch has failed, where there is no memory.
std::unique_ptr<Launch::Team> Launch::make_team() {
  auto team = std::make_unique<Team>();
  for (u32 rank = 0; rank < request_.cluster; ++rank) {
    Resident* resident = make_resident(team->residents);
    if (resident == nullptr) return nullptr;
  }
  return team;
}

// The cluster `index`.
void Launch::start(Team& team, u64 index) {
  std::vector<Block*> blocks;
  team.left.clear();
  team.turn = 0;
  team.pauses = 0;
  for (const auto& resident : team.residents) {
    resident->start(index * request_.cluster + blocks.size());
    blocks.push_back(resident->block());
    team.left.push_back(resident.get());
  }
  if (Order{request_.order} == Order::kReverse) std::reverse(team.left.begin(), team.left.end());
  if (request_.kernel->uses_sm90 != 0 && blocks.size() > 1) team.cluster.start(blocks);
}

// Runs one of its blocks as far as that can go, or until it lets others go first; words and copies
// land when none can run. True once all have ended, or one has failed.
bool Launch::run(Team& team) {
  std::vector<Resident*>& left = team.left;
  u64& turn = team.turn;
  if (Order{request_.order} == Order::kRandom && request_.cluster > 1) {
    turn = left[0]->block()->schedule.random(u32(left.size()));
  }
  u64 tried = 0;
  for (; tried < left.size(); ++tried, ++turn) {
    if (left[turn % left.size()]->block()->runnable_warps != 0) break;
  }
  for (u64 rest = left.size(); tried == left.size() && rest != 0; --rest, ++turn) {
    if (!resume_waiting(left[turn % left.size()]->block())) continue;
    tried = 0;
    break;
  }
  Resident* resident = left[turn % left.size()];
  if (tried == left.size()) report_deadlock(resident->block());
  const bool ended = tried == left.size() || resident->run();
  for (const auto& any : team.residents) {  // what a block sends may break a rule in another one
    if (any->block()->error.kind != ErrorKind::kNone) return true;
  }
  if (ended) {
    left.erase(left.begin() + s64(turn % left.size()));
  } else if (alternates_) {
    turn += 1;
    if (++team.pauses > kMostPauses * threads_that_run(left)) {
      team.pauses = 0;
      const auto goes_on = [](Resident* any) { return resume_waiting(any->block()); };
      std::any_of(left.begin(), left.end(), goes_on);
    }
  }
  return left.empty();
}

void Launch::work() {
  const std::unique_ptr<Team> team = make_team();
  if (team == nullptr) return;
  const u64 end = n_blocks_ / request_.cluster;
  for (u64 index; (index = next_cluster_++) < end && index * request_.cluster < first_failure_;) {
    start(*team, index);
    while (!run(*team)) {
    }
    for (const auto& resident : team->residents) finish_block(*resident);
  }
  std::lock_guard lock(result_mutex_);
  for (const auto& resident : team->residents) resident->add_to(result_);
}

// Whose turn is it? The cluster behind, the one before, or any.
u64 Launch::next_turn(u64 last, u64 n_running) {
  if (schedule_.order == Order::kRandom) return schedule_.random(u32(n_running));
  const u64 step = schedule_.order == Order::kForward ? 1 : n_running - 1;
  return (last + step) % n_running;
}

void Launch::take_turns() {
  const u64 most = std::max<u64>(kMaxResidents / request_.cluster, 1);
  std::vector<std::unique_ptr<Team>> all;
  std::vector<Team*> running, unused;
  for (u64 turn = 0; first_failure_ == ~u64{0};) {
    if (next_cluster_ < n_blocks_ / request_.cluster && running.size() < most) {
      if (unused.empty()) unused.push_back(all.emplace_back(make_team()).get());
      if (unused.back() == nullptr) return;
      start(*unused.back(), next_cluster_++);
      running.push_back(unused.back());
      unused.pop_back();
      turn = running.size() - 1;
    } else if (running.empty()) {
      break;
    } else {
      turn = next_turn(std::min<u64>(turn, running.size() - 1), running.size());
    }
    if (!run(*running[turn])) continue;
    for (const auto& resident : running[turn]->residents) finish_block(*resident);
    unused.push_back(running[turn]);
    running.erase(running.begin() + s64(turn));
  }
  for (const auto& team : all) {
    for (const auto& resident : team->residents) resident->add_to(result_);
  }
}

void Launch::finish_block(Resident& resident) {
  const Counts counts = resident.take_counts();
  const ErrorRecord error = resident.take_error();
  std::lock_guard lock(result_mutex_);
  for (u32 kind = 0; kind < u32(Wait::kCount); ++kind) {
    result_.counts.collectives[kind] += counts.collectives[kind];
  }
  result_.counts.mma_instructions += counts.mma_instructions;
  result_.counts.async_copies += counts.async_copies;
  result_.counts.bulk_loads += counts.bulk_loads;
  result_.counts.bulk_stores += counts.bulk_stores;
  result_.counts.global_loads += counts.global_loads;
  result_.counts.global_stores += counts.global_stores;
  result_.blocks_run += 1;
  if (error.kind != ErrorKind::kNone) fail(resident.index(), error);
}

void Launch::fail(u64 index, const ErrorRecord& error) {
  if (index >= first_failure_) return;
  first_failure_ = index;
  result_.error = error;
  result_.error.block_index = index;
}

}  // namespace

extern "C" void emulator_launch(const LaunchRequest* request, LaunchResult* result) {
  *result = LaunchResult{};
  Launch(*request, *result).run();
}

}  // namespace emulator
