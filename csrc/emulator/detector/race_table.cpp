// The race reports that are kept: one for each pair of places, with a count.
#include <string.h>

#include "race.h"

namespace emulator {

void Races::settle() {
  for (const Suspect& suspect : suspects) {
    if (memcmp(&suspect.before, suspect.memory, suspect.report.bytes) != 0) {
      table.add(suspect.report);
    }
  }
  suspects.clear();
}

RaceReport* RaceTable::find(const RaceReport& report) {
  for (u64 index = 0; index < distinct; ++index) {
    RaceReport& known = reports[index];
    if (known.kind == report.kind && known.is_global == report.is_global &&
        known.first.site == report.first.site && known.second.site == report.second.site) {
      return &known;
    }
  }
  return nullptr;
}

void RaceTable::add(const RaceReport& report) {
  RaceReport* known = find(report);
  if (known != nullptr && known->latest_access == report.latest_access) {
    bool described = known->count == 1;
    if (described && known->address + known->bytes == report.address) known->bytes += report.bytes;
    return;  // one access to several cells counts once
  }
  total += 1;
  if (known != nullptr) {
    known->count += 1;
    known->latest_access = report.latest_access;
  } else if (distinct < kMaxRaces) {
    reports[distinct++] = report;
  }
}

void RaceTable::merge(const RaceTable& other) {
  total += other.total;
  for (u64 index = 0; index < other.distinct; ++index) {
    const RaceReport& report = other.reports[index];
    if (RaceReport* known = find(report)) {
      u64 count = known->count + report.count;
      if (report.second.block < known->second.block) *known = report;
      known->count = count;
    } else if (distinct < kMaxRaces) {
      reports[distinct++] = report;
    }
  }
}

}  // namespace emulator
