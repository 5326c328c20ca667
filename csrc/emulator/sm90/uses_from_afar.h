// What blocks of a cluster do with each other's shared memory must be over before that block ends:
// some thread of it has to know, by a barrier of any kind.
#pragma once

#include <map>

#include "block.h"
#include "race.h"

namespace emulator {

class UsesFromAfar {
 public:
  struct Use {
    u32 tick;  // over for those who have seen it
    const Lane* by;
    u32 site;
    u32 offset, bytes;
  };

  void start_block() { uses_.clear(); }
  // `index` is the tick's place in what threads of this block know. A later use hides an earlier
  // one.
  void note(u32 index, const Use& use);
  // Of a lane of another block, at the mbarrier there.
  void note_arrival(const Block* own, const Lane* lane, u32 offset, u32 site);
  // The block has ended.
  void check(const Block* block) const;

 private:
  std::map<u32, Use> uses_;
};

}  // namespace emulator
