// stmatrix and elect.
#include "collective.h"
#include "memory.h"
#include "sm90_calls.h"

namespace emulator {

namespace {

struct StoreOperands {
  u32 count;
  bool transposed;
  u32 address;
  u32 site;
  const u32* values;
};

// The reverse of ldmatrix: lane l has elements 2 (l % 4) and the next of row l / 4 of each matrix,
// or of column l / 4; lanes 8 m to 8 m + 7 give, and write, the rows of matrix m.
void execute_store(Warp* warp, u32) {
  auto operands = [&](u32 lane) { return static_cast<StoreOperands*>(warp->lanes[lane].operands); };
  const u32 count = operands(0)->count;
  const bool transposed = operands(0)->transposed;
  for (u32 matrix = 0; matrix < count; ++matrix) {
    alignas(16) u16 rows[8][8];
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      const u32 value = operands(lane)->values[matrix];
      for (u32 i = 0; i < 2; ++i) {
        const u32 major = lane / 4, minor = 2 * (lane % 4) + i;
        rows[transposed ? minor : major][transposed ? major : minor] = u16(value >> (16 * i));
      }
    }
    for (u32 row = 0; row < 8; ++row) {
      Lane* lane = &warp->lanes[8 * matrix + row];
      const StoreOperands* own = operands(8 * matrix + row);
      u8* target = shared_pointer<16>(lane, own->address, Access::kWrite, own->site);
      __builtin_memcpy(target, rows[row], 16);
    }
  }
}

struct ElectOperands {
  ElectResult result;
};

void execute_elect(Warp* warp, u32 lanes) {
  const u32 leader = u32(__builtin_ctz(lanes));
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 lane = u32(__builtin_ctz(rest));
    static_cast<ElectOperands*>(warp->lanes[lane].operands)->result = {leader, lane == leader};
  }
}

}  // namespace

void stmatrix(Lane* lane, u32 count, bool transposed, u32 address, const u32* values, u32 site) {
  StoreOperands operands{count, transposed, address, site, values};
  require_full_warp(lane, Wait::kStmatrix, site);
  meet(lane, Wait::kStmatrix, count * 2 + transposed, ~0u, site, &operands, &execute_store,
       SameSite::kRequired);
}

ElectResult elect_sync(Lane* lane, u32 mask, u32 site) {
  ElectOperands operands{};
  meet(lane, Wait::kElect, 0, mask, site, &operands, &execute_elect, SameSite::kRequired);
  return operands.result;
}

}  // namespace emulator
