// fence.proxy.async: what a thread has written in the ordinary way must be fenced by it before an
// asynchronous unit may touch it. Kept apart for shared and for global memory, which have fences of
// their own.
#pragma once

#include <vector>

#include "observers.h"

namespace emulator {

class ProxyFences {
 public:
  explicit ProxyFences(u32 n_threads) : clocks_(n_threads) {}

  void start_block();
  void fence(const Lane* lane);
  // Whether all writers of the record have executed the fence after it, and before the barrier
  // through which the observers know of it.
  bool cover(const Record& record, const Observers& observers) const;

 private:
  // By thread: the clocks at which it executed fences, ascending. Of those between two barriers or
  // arrivals only the last is kept: whoever learns of one of them learns of all.
  std::vector<std::vector<u32>> clocks_;
};

}  // namespace emulator
