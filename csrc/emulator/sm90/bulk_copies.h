// Bulk copies: of tensor boxes and of plain bytes, from and to shared memory; and reductions, which
// add to global memory in place of storing there.
//
// A load lands as late as possible: when no thread can run, or by chance under random schedules;
// or, if the launch asks for it, at once, which lets threads run further ahead of others. Until it
// lands its destination holds 0xFF bytes, NaN in every floating-point format. A store reads
// and writes at once; that its source may not change before the wait is the race detector's to
// watch.
#pragma once

#include <vector>

#include "block.h"
#include "memory.h"
#include "sm90_calls.h"
#include "tensor_map.h"

namespace emulator {

struct Mbarrier;
struct Sm90;

// Checks shared bytes [address, address + bytes) of a copy, in the block of `sm90`; returns the
// offset.
u32 shared_offset(Lane* lane, const Sm90& sm90, u32 address, u32 bytes, u32 alignment,
                  Access access, u32 site);

// A tensor map at a generic address, with as many dimensions.
const TensorMap& tensor_map(Lane* lane, u64 address, u32 rank, u32 site);

class BulkCopies {
 public:
  BulkCopies(Block* block, bool early, Access adds)
      : block_(block),
        early_(early),
        adds_(adds),
        groups_(block->n_threads),
        written_(block->n_threads) {}

  void start_block();
  // Here, for a thread of this block, or of another one of its cluster, which loads for several.
  void load(Lane* lane, const TensorMap& map, const s32* place, u32 destination, u32 barrier,
            u32 site);
  // What a thread of this block, or of another one of its cluster, brings here (sent_bytes.cpp):
  // st.async, and a copy of its own block's shared memory. Land as loads do.
  struct Sent {
    u32 address, bytes, alignment;
    u32 barrier;
    u32 site;
  };
  void store_word(Lane* lane, const Sent& sent, const u8* value);
  void copy_to_here(Lane* lane, const Sent& sent, u32 source);
  void store(Lane* lane, const TensorMap& map, const s32* place, u32 source, StoreBy by, u32 site);
  void commit_group(Lane* lane);
  void wait_group(Lane* lane, u32 pending_groups, Until until);

  bool land_one(Block* block);  // false: nothing is in flight
  void surprise(Lane* lane);    // random schedules: lands one now and then
  void exit_lane(Lane* lane);
  void finish_block(Block* block);
  // The first copy from there that is in flight to here, if there is one, reported.
  bool report_copy_of(const Block* other) const;

 private:
  struct Load {
    TensorMap map;
    s32 place[TensorMap::kMaxRank];
    u32 destination;  // offset
    Mbarrier* barrier;
    u32 operation;  // in the async shadow
    u32 site;
    Lane* lane;
    u32 sent_bytes;  // not 0: of a word, or of `from`, in place of the box of a map
    u8 word[16];
    const Block* from = nullptr;  // a copy's
    u32 source = 0;               // offset there
    u32 source_operation = 0;     // in its async shadow
    Lane* sender = nullptr;       // of another block of the cluster
  };
  // Of the stores of one thread.
  struct Groups {
    u32 commits, waited;
    u32 uncommitted;
    u32 agent;  // + 1; 0: has none yet
    u32 site;   // of the last store
  };
  // Whose writes nobody has waited for yet.
  struct Store {
    TensorMap map;
    s32 place[TensorMap::kMaxRank];
    u32 group;  // as `commits` counts them
    u32 site;
  };

  u32 begin_write(Lane* lane, const Mbarrier& barrier, u32 offset, u32 bytes, u32 site);
  void surprise_from_afar(Lane* lane);
  Load receive(Lane* lane, const Sent& sent);
  void send(Lane* lane, const Load& load);
  void note_landing(const Load& load) const;
  void land(Block* block, u64 index);
  void land_if_early(Lane* lane);
  void land_stores(Lane* lane, u32 groups);

  Block* block_;
  bool early_;
  Access adds_;  // what a reduction does to global memory, for the race detector
  std::vector<Load> in_flight_;
  std::vector<Groups> groups_;               // by thread
  std::vector<std::vector<Store>> written_;  // by thread; where races are looked for
};

}  // namespace emulator
