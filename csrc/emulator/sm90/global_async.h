// The race detector's view of what bulk copies do to global memory.
//
// That a load reads and a store writes there is in the detector's own records (race.h), as accesses
// of the thread that issued them: a store's stay in flight until cp.async.bulk.wait_group has
// waited for the write. Here: what was written in the ordinary way is fenced before a copy touches
// it, and what a load reads stays until it has landed.
#pragma once

#include <unordered_map>
#include <vector>

#include "async_shadow.h"
#include "tensor_map.h"

namespace emulator {

class GlobalAsync {
 public:
  GlobalAsync(AsyncShadow& shadow, u32 n_threads) : shadow_(shadow), fences_(n_threads) {}

  void start_block(Races* races);
  void fence(const Lane* lane) { fences_.fence(lane); }

  // A copy by `lane` touches bytes in a range that kernels may write. The detector has looked at
  // them before.
  void check_fences(Lane* lane, u64 address, u32 bytes, u32 site);
  // They are read by load `id` until that has landed.
  void keep_load(Lane* lane, u32 id, u64 address, u32 bytes);
  // A lane, or a copy that it issues, writes.
  void write(Lane* lane, u64 address, u32 bytes, u32 site);

 private:
  static constexpr u32 kUnitBytes = 16;
  struct Load {
    u32 id;
    u32 bytes;  // of the unit: a bit for each
  };

  template <typename Visit>
  void for_each_unit(u64 address, u32 bytes, Visit visit);

  AsyncShadow& shadow_;
  ProxyFences fences_;
  Races* races_ = nullptr;
  std::unordered_map<u64, std::vector<Load>> loads_;  // by address / kUnitBytes
  std::vector<GlobalWrite> writes_;
};

}  // namespace emulator
