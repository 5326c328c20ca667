// The race detector: which accesses to shared and global memory does nothing order?
//
// Every thread has a clock, which its barriers advance, and knows how far it has seen every other
// thread of its block: bar.sync, named barriers and bar.warp.sync join that knowledge for exactly
// the threads that take part (bar.arrive gives its own and takes none). shfl, vote, ldmatrix and
// mma order nothing, as in the PTX memory model. Threads of different blocks are ordered by flags
// with fences around them (block_order.h), and by nothing else.
//
// Every cell (4 bytes, or the smallest access of the kernel if that is less) remembers its last
// write, and its last reads: one record per warp in shared memory, which loses none; two in all in
// global memory. A cp.async is a write in flight from its issue to the wait of its own thread, and
// becomes that thread's write there.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "lane.h"
#include "types.h"

namespace emulator {

enum class Access : u32;
class BlockOrder;
struct KernelInfo;
struct AsyncCopy;
struct Barrier;

// The clocks up to which threads of other blocks are known: by block + 1, by thread.
using Known = std::map<u32, std::vector<u32>>;

// What a thread knows: the clocks up to which it has seen all threads of its block. Shared by
// threads that met at a barrier.
struct Seen {
  const Known* others;  // of other blocks (block_order.h); null: nothing
  u32 references;
  u32 floor;  // the least of ticks: records up to here are ordered for sure
  u32* ticks() { return reinterpret_cast<u32*>(this + 1); }
  const u32* ticks() const { return reinterpret_cast<const u32*>(this + 1); }
};

// Accesses of lanes of one warp between the same barriers.
struct Record {
  u32 clock;  // 0: none; kInFlight is added until an asynchronous copy has landed: seen by nobody
  u32 lanes;
  u32 site : 29;
  u32 atomic : 1;  // does not race with others that are
  u32 update : 1;  // an atomic one that writes
  u32 bulk : 1;    // a bulk copy's, in global memory
  u32 warp : 5;
  u32 block : 27;  // index + 1

  static constexpr u32 kInFlight = 1u << 31;
  bool in_flight() const { return (clock & kInFlight) != 0; }
  bool operator==(const Record&) const = default;
};

// The records of one memory: slot 0 holds writes, the others reads and atomic updates.
struct Cells {
  Record* records = nullptr;
  u64 count = 0;
  u64 bytes = 0;
  Record* slot(u32 index) const { return records + index * count; }
};
Cells map_cells(u64 count, u32 slots);
void unmap_cells(const Cells& cells);

enum class RaceKind : u32 {
  kReadAfterWrite,
  kWriteAfterRead,
  kWriteAfterWrite,
  kReadInFlight,
  kWriteInFlight,
  kReadUnwritten,
  // With asynchronous units (sm90/async_shadow.h):
  kReadOfLoad,
  kWriteToLoad,
  kWriteToWgmmaSource,
  kWriteToStoreSource,
  kNoProxyFence,
  kBarrierUnseen,
  kBarrierUnfenced,
  // Between the blocks of a cluster (sm90/cluster.h):
  kWriteToCopySource,
  kMayHaveEnded,
  // In global memory (sm90/global_async.h):
  kReadOfStore,
  kWriteToStore,
  kWriteToLoadSource,
};

struct RaceParty {
  u64 block;
  u32 thread;
  u32 site;
  u32 barrier_site;  // the last barrier that the thread passed, 0: none
  u32 passed_since;  // first party only: it passed that barrier after its access
};

struct RaceReport {
  RaceKind kind;
  u32 is_global;
  RaceParty first;
  RaceParty second;
  u64 address;
  u64 bytes;
  u64 count;          // accesses that raced between these two places
  u64 latest_access;  // number of the last of them
};

inline constexpr u32 kGlobalSlots = 3;  // the write and two others

inline constexpr u32 kMaxRaces = 256;  // distinct pairs of places that are kept

struct RaceTable {
  RaceReport reports[kMaxRaces];
  u64 distinct;  // kept
  u64 total;     // accesses, also of pairs that found no place

  RaceReport* find(const RaceReport& report);
  void add(const RaceReport& report);
  void merge(const RaceTable& other);
};

// Two plain writes that nothing orders, the second of which is about to happen: a race unless it
// writes what is there already.
struct Suspect {
  RaceReport report;
  const u8* memory;
  u32 before;
};

// The shadow memory of a launch: of its writable ranges, for all workers.
struct GlobalShadow {
  std::vector<Cells> ranges;  // in the order of the range table
  u32 granule_log2;
  bool atomics;                       // the kernel has atomic updates
  std::unique_ptr<BlockOrder> order;  // null: the kernel has no fences for other blocks
  u8 locks[256];                      // of lines

  GlobalShadow(const KernelInfo& kernel, const GlobalRange* table, u32 count);
  ~GlobalShadow();
  GlobalShadow(const GlobalShadow&) = delete;
  GlobalShadow& operator=(const GlobalShadow&) = delete;
};

// Cells of global memory are looked at, and changed, by one worker at a time.
inline constexpr u32 kLineBytes = 64;
class LineLock {
 public:
  LineLock(GlobalShadow& shadow, u64 address);
  ~LineLock();
  LineLock(const LineLock&) = delete;
  LineLock& operator=(const LineLock&) = delete;

 private:
  u8* lock_;
};

// Calls visit(address, bytes) for the part of each line.
template <typename Visit>
void for_each_line(u64 address, u32 bytes, Visit visit) {
  for (const u64 end = address + bytes; address < end;) {
    const u64 next = std::min(end, (address / kLineBytes + 1) * kLineBytes);
    visit(address, u32(next - address));
    address = next;
  }
}

// The cell of an address in the range that `lane` has just accessed, which is writable.
struct GlobalCells {
  const Cells& cells;
  u64 first;
};
GlobalCells global_cells(const Lane* lane, u64 address);

// Appends the writes and atomic updates that these bytes remember, equal neighbours as one.
struct GlobalWrite {
  Record record;
  u64 address;
  u32 bytes;
};
void global_writes(const Lane* lane, u64 address, u32 bytes, std::vector<GlobalWrite>& writes);

// What the bulk store or reduction of `lane` at `site` wrote there has landed: now it is the lane's
// own write or atomic update.
void land_bulk_write(const Lane* lane, u64 address, u32 bytes, u32 site);

// The detector's state of one worker, used for its blocks in turn.
struct Races {
  Block* owner;
  GlobalShadow* global;
  u32 n_threads;
  u32 n_warps;
  u32 n_agents;
  u32 cluster;  // blocks of one
  Cells shared{};
  u32 block = 0;         // index + 1 of the running one
  bool atomics = false;  // of shared memory: since the first one, reads look for them
  u64 access = 0;
  std::vector<Suspect> suspects;
  // Of each thread, in kernels with fences for other blocks: what the flags said that it has read
  // since its last fence, and what it knew there.
  struct Flags {
    Known read;
    Seen* fenced = nullptr;
    u32 clock = 0;
  };
  std::vector<Flags> flags;
  RaceTable table{};

  Races(Block* owner, GlobalShadow* global, u32 shared_bytes, u32 n_agents, u32 cluster);
  ~Races();
  Races(const Races&) = delete;
  Races& operator=(const Races&) = delete;

  void start_block(u64 index);
  void settle();  // the suspects, once their writes have happened

  // A barrier: `join` for each thread that brings its knowledge, `complete`, `give` for each that
  // takes it with it, `drop`. `meet` is all that for lanes of one warp, and for those that wait at
  // a barrier of the block.
  Seen* make();
  Seen* copy_of(const Seen* source);  // knows nothing if null
  void join(Seen* into, const Lane& lane);
  void complete(Seen* seen);
  void give(Seen* seen, Lane& lane);
  void drop(Seen* seen);
  void meet(Lane* lanes, u32 mask);
  void meet(const Barrier& barrier);

  // A Seen holds the ticks of this many threads, then those of agents (sm90/knowledge.h). Behind
  // them come those of the blocks of the cluster that follow this one, round about.
  u32 n_threads_padded() const { return n_warps * kWarpSize; }
  u32 n_own_ticks() const { return n_threads_padded() + n_agents; }
  u32 n_ticks() const { return cluster * n_own_ticks(); }
  // Whether a record of this block's shared memory lies before what `lane` does now.
  bool is_ordered_in_block(const Lane* lane, const Record& record) const;

  // The blocks of this one's cluster (cluster_order.cpp), by index + 1: whether it is one, and
  // where its ticks begin.
  bool is_neighbour(u32 other) const { return (other - 1) / cluster == (block - 1) / cluster; }
  u32 ticks_of(u32 other) const {
    return (other - 1 + cluster - (block - 1) % cluster) % cluster * n_own_ticks();
  }
  // Whether a record of another one lies before what somebody with this knowledge does now.
  bool is_ordered_in_cluster(const Seen* seen, const Record& record) const;
  // A barrier of this block takes what a lane of another one brings.
  void join_neighbour(Seen* into, const Lane& lane) const;
  // Only which asynchronous operations it knows to be over.
  void join_neighbour_agents(Seen* into, const Lane& lane) const;
  // What that lane knows, as threads of this block would.
  Seen* view_of(const Lane& lane);

 private:
  template <typename Each>
  void exchange(Seen* seen, Each each);
  // Of each block's ticks those from `from` on.
  void join_neighbour_ticks(Seen* into, const Lane& lane, u32 from) const;

  std::vector<Seen*> all;
  std::vector<Seen*> unused;
  const Seen* joined_into = nullptr;  // the last pair that was joined
  const Seen* joined_from = nullptr;
};

// A cp.async of `lane` has landed: from now on it is the lane's own read and write.
void land_async_write(Lane* lane, const AsyncCopy& copy);

}  // namespace emulator
