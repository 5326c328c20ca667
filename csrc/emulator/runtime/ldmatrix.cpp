// ldmatrix: 8x8 matrices of 16-bit elements from shared memory into the fragment layout of mma.
#include "collective.h"
#include "device_calls.h"
#include "memory.h"

namespace emulator {

namespace {

struct Operands {
  u32 count;
  bool transposed;
  u32 address;
  u32 site;
  u32* result;
};

// Lanes 8m to 8m+7 give the row addresses of matrix m. Lane l receives elements 2(l%4) and
// 2(l%4)+1 of row l/4, or of column l/4 when transposed.
void execute(Warp* warp, u32) {
  auto operands = [&](u32 lane) { return static_cast<Operands*>(warp->lanes[lane].operands); };
  const u32 count = operands(0)->count;
  const bool transposed = operands(0)->transposed;
  for (u32 matrix = 0; matrix < count; ++matrix) {
    alignas(16) u16 rows[8][8];
    for (u32 row = 0; row < 8; ++row) {
      u32 source = 8 * matrix + row;
      Lane* lane = &warp->lanes[source];
      const Operands* own = operands(source);
      __builtin_memcpy(rows[row], shared_pointer<16>(lane, own->address, Access::kRead, own->site),
                       16);
    }
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      u32 major = lane / 4;
      u32 minor = 2 * (lane % 4);
      u32 low = transposed ? rows[minor][major] : rows[major][minor];
      u32 high = transposed ? rows[minor + 1][major] : rows[major][minor + 1];
      operands(lane)->result[matrix] = low | high << 16;
    }
  }
}

}  // namespace

void ldmatrix(Lane* lane, u32 count, bool transposed, u32 address, u32* result, u32 site) {
  Operands operands{count, transposed, address, site, result};
  require_full_warp(lane, Wait::kLdmatrix, site);
  meet(lane, Wait::kLdmatrix, count * 2 + transposed, ~0u, site, &operands, &execute,
       SameSite::kRequired);
}

}  // namespace emulator
