// A place where thread blocks run, one after the other: all that a worker keeps for one of them.
// Fibers never leave their OS thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "async_copies.h"
#include "cluster.h"
#include "launch.h"
#include "sm90.h"

namespace emulator {

// Stacks of one block's fibers, each above an inaccessible page. The start within the last page
// is different for neighbours: equal offsets would compete for the same cache sets.
class FiberStacks {
 public:
  FiberStacks(u32 count, u64 bytes);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  bool ok() const;
  u8* bottom(u32 index) const { return base_ + index * stride_ + page_; }
  u64 bytes(u32 index) const { return stride_ - page_ - u64{index % kColours} * kColourBytes; }

 private:
  static constexpr u64 kColours = 16;
  static constexpr u64 kColourBytes = 5 * 64;
  u64 page_, stride_, total_;
  u8* base_;
};

class Resident {
 public:
  // `shadow` is null without a race detector. `alternates`: blocks take turns at strong accesses.
  Resident(const LaunchRequest& request, GlobalShadow* shadow, bool alternates);

  bool ok() const { return stacks_.ok(); }
  void start(u64 index);
  bool run();  // until the block ends, with or without an error; false: it lets others go first
  u64 index() const { return index_; }
  Block* block() { return &block_; }
  // Of the block that has ended: what it counted, its error. Both begin anew.
  Counts take_counts();
  ErrorRecord take_error();
  // At the end of the launch.
  void add_to(LaunchResult& result) const;

 private:
  void start_lane(u32 thread);

  const LaunchRequest& request_;
  Block block_{};
  u64 index_ = 0;
  u32 watch_;
  std::vector<Lane> lanes_;
  std::vector<AsyncCopies> copies_;
  std::vector<u8> shared_;
  std::optional<Traffic> traffic_;
  std::unique_ptr<Races> races_;
  std::unique_ptr<Sm90> sm90_;
  Cluster own_cluster_;  // of this block alone
  FiberStacks stacks_;
};

}  // namespace emulator
