#include "proxy_fences.h"

#include <algorithm>

#include "lane.h"

namespace emulator {

void Observers::add(Lane* lane) {
  lanes[count++] = lane;
  if (std::find(seen, seen + distinct, lane->seen) == seen + distinct)
    seen[distinct++] = lane->seen;
}

void ProxyFences::start_block() {
  for (std::vector<u32>& clocks : clocks_) clocks.clear();
}

void ProxyFences::fence(const Lane* lane) {
  std::vector<u32>& clocks = clocks_[thread_of(lane)];
  if (!clocks.empty() && clocks.back() + 1 == lane->clock) clocks.pop_back();
  clocks.push_back(lane->clock);
}

bool ProxyFences::cover(const Record& record, const Observers& observers) const {
  for (u32 lanes = record.lanes; lanes != 0; lanes &= lanes - 1) {
    const u32 thread = record.warp * kWarpSize + u32(__builtin_ctz(lanes));
    const std::vector<u32>& clocks = clocks_[thread];
    const auto fence = std::lower_bound(clocks.begin(), clocks.end(), record.clock);
    if (fence == clocks.end()) return false;  // none behind the write
    for (u32 index = 0; index < observers.count; ++index) {
      const Lane* observer = observers.lanes[index];
      if (!observers.afar && thread_of(observer) == thread) continue;
      if (observer->seen->ticks()[thread] <= *fence) return false;
    }
  }
  return true;
}

}  // namespace emulator
