// shfl.sync, vote.sync, redux.sync, bar.warp.sync and ldmatrix.
#include "collective.h"
#include "device_calls.h"
#include "memory.h"
#include "race.h"

namespace emulator {

namespace {

// What a lane reads from a lane that does not take part is undefined; poison makes it visible.
constexpr u32 kUndefined = ~0u;

template <typename T>
T& operands_of(Warp* warp, u32 lane) {
  return *static_cast<T*>(warp->lanes[lane].operands);
}

struct ShuffleOperands {
  Shuffle mode;
  u32 value, b, c;
  ShuffleResult result;
};

// PTX ISA, shfl.sync: c holds the clamp value (bits 0-4) and the segment mask (bits 8-12).
void execute_shuffle(Warp* warp, u32 lanes) {
  for_each_lane(lanes, [&](u32 lane) {
    auto& own = operands_of<ShuffleOperands>(warp, lane);
    u32 b = own.b & 31, clamp = own.c & 31, segment = own.c >> 8 & 31;
    s32 limit = s32((lane & segment) | (clamp & ~segment));
    s32 source = s32(own.mode == Shuffle::kUp     ? lane - b
                     : own.mode == Shuffle::kDown ? lane + b
                     : own.mode == Shuffle::kBfly ? lane ^ b
                                                  : (lane & segment) | (b & ~segment));
    bool in_range = own.mode == Shuffle::kUp ? source >= limit : source <= limit;
    if (!in_range) source = s32(lane);
    bool present = lanes >> source & 1;
    u32 value = present ? operands_of<ShuffleOperands>(warp, u32(source)).value : kUndefined;
    own.result = {value, in_range};
  });
}

struct ReduceOperands {
  Combine combine;
  u32 value;
};

void execute_reduce(Warp* warp, u32 lanes) {
  auto& first = operands_of<ReduceOperands>(warp, u32(__builtin_ctz(lanes)));
  u32 result = first.value;
  for_each_lane(lanes & (lanes - 1), [&](u32 lane) {
    result = first.combine(result, operands_of<ReduceOperands>(warp, lane).value);
  });
  for_each_lane(lanes, [&](u32 lane) { operands_of<ReduceOperands>(warp, lane).value = result; });
}

void execute_warp_barrier(Warp* warp, u32 lanes) {
  if (Races* races = warp->block->races) races->meet(warp->lanes, lanes);
}

struct LdmatrixOperands {
  u32 count;
  bool transposed;
  u32 address;
  u32 site;
  u32* result;
};

// Lanes 8m to 8m+7 give the row addresses of matrix m. Lane l receives elements 2(l%4) and
// 2(l%4)+1 of row l/4, or of column l/4 when transposed.
void execute_ldmatrix(Warp* warp, u32) {
  auto operands = [&](u32 lane) -> auto& { return operands_of<LdmatrixOperands>(warp, lane); };
  const u32 count = operands(0).count;
  const bool transposed = operands(0).transposed;
  for (u32 matrix = 0; matrix < count; ++matrix) {
    alignas(16) u16 rows[8][8];
    for (u32 row = 0; row < 8; ++row) {
      Lane* lane = &warp->lanes[8 * matrix + row];
      const auto& own = operands(8 * matrix + row);
      const u8* from = shared_pointer<16>(lane, own.address, Access::kRead, own.site);
      __builtin_memcpy(rows[row], from, 16);
    }
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      u32 major = lane / 4;
      u32 minor = 2 * (lane % 4);
      u32 low = transposed ? rows[minor][major] : rows[major][minor];
      u32 high = transposed ? rows[minor + 1][major] : rows[major][minor + 1];
      operands(lane).result[matrix] = low | high << 16;
    }
  }
}

}  // namespace

ShuffleResult shfl_sync(Lane* lane, Shuffle mode, u32 value, u32 b, u32 c, u32 mask, u32 site) {
  ShuffleOperands operands{mode, value, b, c, {}};
  meet(lane, Wait::kShuffle, u32(mode), mask, site, &operands, &execute_shuffle,
       SameSite::kRequired);
  return operands.result;
}

u32 reduce_sync(Lane* lane, Wait kind, Combine combine, u32 value, u32 mask, u32 site) {
  ReduceOperands operands{combine, value};
  meet(lane, kind, 0, mask, site, &operands, &execute_reduce, SameSite::kRequired);
  return operands.value;
}

// Lanes may come from different instructions: __syncwarp in both branches of an `if` is legal.
void bar_warp_sync(Lane* lane, u32 mask, u32 site) {
  lane->wait_site = site;
  meet(lane, Wait::kWarpBarrier, 0, mask, site, nullptr, &execute_warp_barrier,
       SameSite::kNotRequired);
}

void ldmatrix(Lane* lane, u32 count, bool transposed, u32 address, u32* result, u32 site) {
  LdmatrixOperands operands{count, transposed, address, site, result};
  require_full_warp(lane, Wait::kLdmatrix, site);
  meet(lane, Wait::kLdmatrix, 0, ~0u, site, &operands, &execute_ldmatrix, SameSite::kRequired);
}

}  // namespace emulator
