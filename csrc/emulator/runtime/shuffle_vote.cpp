// shfl.sync, vote.sync, redux.sync and bar.warp.sync.
#include <algorithm>

#include "collective.h"
#include "device_calls.h"
#include "race.h"

namespace emulator {

namespace {

// What a lane reads from a lane that does not take part is undefined; poison makes it visible.
constexpr u32 kUndefined = ~0u;

struct ShuffleOperands {
  Shuffle mode;
  u32 value;
  u32 b;
  u32 c;
  ShuffleResult result;
};

template <typename T>
T& operands_of(Warp* warp, u32 lane) {
  return *static_cast<T*>(warp->lanes[lane].operands);
}

template <typename Visit>
void for_each_lane(u32 lanes, Visit visit) {
  for (; lanes != 0; lanes &= lanes - 1) visit(u32(__builtin_ctz(lanes)));
}

// PTX ISA, shfl.sync: c holds the clamp value (bits 0-4) and the segment mask (bits 8-12).
void shuffle_lane(Warp* warp, u32 lanes, u32 lane) {
  auto& own = operands_of<ShuffleOperands>(warp, lane);
  u32 b = own.b & 31;
  u32 clamp = own.c & 31;
  u32 segment = own.c >> 8 & 31;
  u32 max_lane = (lane & segment) | (clamp & ~segment);
  u32 min_lane = lane & segment;
  s32 source = 0;
  bool in_range = false;
  switch (own.mode) {
    case Shuffle::kUp:
      source = s32(lane) - s32(b);
      in_range = source >= s32(max_lane);
      break;
    case Shuffle::kDown:
      source = s32(lane + b);
      in_range = source <= s32(max_lane);
      break;
    case Shuffle::kBfly:
      source = s32(lane ^ b);
      in_range = source <= s32(max_lane);
      break;
    case Shuffle::kIdx:
      source = s32(min_lane | (b & ~segment));
      in_range = source <= s32(max_lane);
      break;
  }
  if (!in_range) source = s32(lane);
  bool present = lanes >> source & 1;
  own.result = {present ? operands_of<ShuffleOperands>(warp, u32(source)).value : kUndefined,
                in_range};
}

void execute_shuffle(Warp* warp, u32 lanes) {
  for_each_lane(lanes, [&](u32 lane) { shuffle_lane(warp, lanes, lane); });
}

struct VoteOperands {
  Vote mode;
  bool predicate;
  u32 result;
};

void execute_vote(Warp* warp, u32 lanes) {
  u32 ballot = 0;
  for_each_lane(lanes, [&](u32 lane) {
    ballot |= u32{operands_of<VoteOperands>(warp, lane).predicate} << lane;
  });
  for_each_lane(lanes, [&](u32 lane) {
    auto& own = operands_of<VoteOperands>(warp, lane);
    switch (own.mode) {
      case Vote::kAll:
        own.result = ballot == lanes;
        break;
      case Vote::kAny:
        own.result = ballot != 0;
        break;
      case Vote::kUni:
        own.result = ballot == lanes || ballot == 0;
        break;
      case Vote::kBallot:
        own.result = ballot;
        break;
    }
  });
}

struct ReduceOperands {
  Reduce operation;
  u32 value;
};

u32 combine(Reduce operation, u32 a, u32 b) {
  switch (operation) {
    case Reduce::kAddS32:
      return a + b;
    case Reduce::kMinS32:
      return u32(std::min(s32(a), s32(b)));
    case Reduce::kMaxS32:
      return u32(std::max(s32(a), s32(b)));
    case Reduce::kMinU32:
      return std::min(a, b);
    case Reduce::kMaxU32:
      return std::max(a, b);
    case Reduce::kAnd:
      return a & b;
    case Reduce::kOr:
      return a | b;
    default:
      return a ^ b;
  }
}

void execute_reduce(Warp* warp, u32 lanes) {
  auto& first = operands_of<ReduceOperands>(warp, u32(__builtin_ctz(lanes)));
  u32 result = first.value;
  for_each_lane(lanes & (lanes - 1), [&](u32 lane) {
    result = combine(first.operation, result, operands_of<ReduceOperands>(warp, lane).value);
  });
  for_each_lane(lanes, [&](u32 lane) { operands_of<ReduceOperands>(warp, lane).value = result; });
}

void execute_warp_barrier(Warp* warp, u32 lanes) {
  if (Races* races = warp->block->races) races->meet(warp->lanes, lanes);
}

}  // namespace

ShuffleResult shfl_sync(Lane* lane, Shuffle mode, u32 value, u32 b, u32 c, u32 mask, u32 site) {
  ShuffleOperands operands{mode, value, b, c, {}};
  meet(lane, Wait::kShuffle, u32(mode), mask, site, &operands, &execute_shuffle,
       SameSite::kRequired);
  return operands.result;
}

u32 vote_sync(Lane* lane, Vote mode, bool predicate, u32 mask, u32 site) {
  VoteOperands operands{mode, predicate, 0};
  meet(lane, Wait::kVote, u32(mode), mask, site, &operands, &execute_vote, SameSite::kRequired);
  return operands.result;
}

u32 redux_sync(Lane* lane, Reduce operation, u32 value, u32 mask, u32 site) {
  ReduceOperands operands{operation, value};
  meet(lane, Wait::kReduce, u32(operation), mask, site, &operands, &execute_reduce,
       SameSite::kRequired);
  return operands.value;
}

// Lanes may come from different instructions: __syncwarp in both branches of an `if` is legal.
void bar_warp_sync(Lane* lane, u32 mask, u32 site) {
  lane->wait_site = site;
  meet(lane, Wait::kWarpBarrier, 0, mask, site, nullptr, &execute_warp_barrier,
       SameSite::kNotRequired);
}

}  // namespace emulator
