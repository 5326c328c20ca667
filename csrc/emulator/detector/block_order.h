// What orders accesses of different blocks: flags in global memory, and the fences around them.
//
// A thread that executes a fence for other blocks and then writes a flag (an atomic update, or a
// store that is volatile, relaxed or release) publishes all that it knew at the fence. Whoever
// reads the flag (atomically, or by such a load) and then executes a fence knows it too, and passes
// it on at barriers (PTX ISA, release and acquire patterns). A release or acquire instruction is a
// fence before or behind it. All this of one worker: blocks with flags take turns on it.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "race.h"

namespace emulator {

class BlockOrder {
 public:
  // Whether `record`, of another block, lies before what somebody with this knowledge does now.
  static bool is_ordered(const Seen* seen, const Record& record);

  void fence(Lane* lane);
  void read_flag(const Lane* lane, u64 address);
  void write_flag(const Lane* lane, u64 address, Access access);

  // What threads know who have met; each may be null.
  const Known* merged(const Known* a, const Known* b);

 private:
  std::deque<Known> all_;  // what threads know or have known: few, those that came through fences
  std::unordered_map<u64, Known> flags_;
};

}  // namespace emulator
