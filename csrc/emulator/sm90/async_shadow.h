// The race detector's view of what the asynchronous units do to shared memory: copies that write
// tiles, matmuls and stores that read them. Kept per 16 bytes, which all of them handle whole.
//
// An operation is over for those who know its agent's tick (knowledge.h). Accesses of threads stay
// in the detector's own records (race.h); what those say is compared when an operation comes to the
// same bytes, together with the fence that a thread's writes need before an asynchronous unit may
// touch them.
#pragma once

#include <unordered_map>
#include <vector>

#include "knowledge.h"
#include "lane.h"
#include "observers.h"
#include "proxy_fences.h"
#include "race.h"

namespace emulator {

// kCopyOut: to another block of the cluster, where a barrier hears of its end.
enum class AsyncKind : u32 { kBulkLoad, kBulkStore, kCopyOut, kWgmma };

struct AsyncOperation {
  AsyncKind kind;
  u32 agent;
  u32 tick;    // kNever until a load has landed
  u32 thread;  // that issued it, or the first of the warp
  u32 site;
  const Block* by = nullptr;  // whose thread; null: this one's
  static constexpr u32 kNever = ~0u;
};

class AsyncShadow {
 public:
  AsyncShadow(Knowledge& knowledge, u32 shared_bytes, u32 n_warps);

  void start_block(Races* races);
  bool tracked() const { return races_ != nullptr; }

  // A new operation, in flight.
  u32 begin(const AsyncOperation& operation);
  void landed(u32 id, u32 tick) { operation(id).tick = tick; }

  // The operation touches shared bytes [offset, offset + bytes), multiples of 16. A read replaces
  // one of the same agent, whose operations end in order, or one that was over for the observers.
  void write(u32 id, const Observers& observers, u32 offset, u32 bytes);
  void read(u32 id, const Observers& observers, u32 offset, u32 bytes);

  // A lane's own access, before the detector looks at it.
  void lane_access(Lane* lane, u32 offset, u32 bytes, bool writes, u32 site);

  void fence(const Lane* lane) { fences_.fence(lane); }

  // Whether an operation of this block is over for a lane; what it was.
  bool is_over_for(u32 id, Lane* lane);
  const AsyncOperation& known(u32 id) { return operation(id); }

 private:
  // Columns of a cell: stamp of the block in which lanes have touched it since it was last copied
  // to, the last copy there, the last store or copy from there, the last matmul of each warpgroup.
  enum Column : u32 { kTouched, kWrite, kStore, kFirstGroup };
  static constexpr u32 kCellBytes = 16;

  u32* cell(u32 offset) { return &cells_[u64{offset / kCellBytes} * columns_]; }
  AsyncOperation& operation(u32 id) { return operations_[id - first_id_]; }
  bool exists(u32 id) const { return id >= first_id_; }
  bool is_over(u32 id, const Observers& observers);
  void report(u32 id, RaceKind kind, const Lane* lane, u32 site, u32 offset);
  void keep_store(const u32* cell, u32 id, const Observers& observers, u32 offset);
  void check_reads(u32 id, const u32* cell, const Observers& observers, u32 site, u32 offset);
  bool check_lanes(u32 id, const Observers& observers, u32 offset, bool writes);
  void check_record(u32 id, const Observers& observers, const Record& record, RaceKind kind,
                    u32 offset);

  Knowledge& knowledge_;
  Races* races_ = nullptr;
  u32 columns_;
  u32 first_id_ = 1, next_id_ = 1;
  std::vector<u32> cells_;
  std::vector<AsyncOperation> operations_;  // of this block
  // Stores that read a cell beside its last one, by the cell's offset.
  std::unordered_map<u32, std::vector<u32>> other_stores_;
  ProxyFences fences_;
  u32 judged_ = 0;  // the operation asked about last, and the answer for the current observers
  bool judged_over_ = false;
};

}  // namespace emulator
