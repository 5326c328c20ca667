// The instructions that translated kernels call instead of containing: everything that involves
// other lanes, asynchronous copies, or code too long to repeat at every use.
#pragma once

#include "lane.h"
#include "types.h"

namespace emulator {

// --- warp collectives: `site` is the PTX line --------------------------------------------------

enum class Shuffle : u32 { kUp, kDown, kBfly, kIdx };
struct ShuffleResult {
  u32 value;
  bool in_range;
};
ShuffleResult shfl_sync(Lane* lane, Shuffle mode, u32 value, u32 b, u32 c, u32 mask, u32 site);

// redux.sync, and vote.sync as a reduction of predicates.
using Combine = u32 (*)(u32, u32);
u32 reduce_sync(Lane* lane, Wait kind, Combine combine, u32 value, u32 mask, u32 site);

void bar_warp_sync(Lane* lane, u32 mask, u32 site);

// ldmatrix.m8n8.b16: `count` of 1, 2 or 4 matrices into result[0..count).
void ldmatrix(Lane* lane, u32 count, bool transposed, u32 address, u32* result, u32 site);

// mma with f32 accumulators: m16n8k16, or m16n8k8 for tf32. A run of mma instructions that do not
// depend on each other meets once: resuming 32 lanes costs more than the arithmetic.
struct MmaOperands {
  const u32* a;  // 4; consecutive instructions often share them
  u32 b[2];
  f32 c[4];  // overwritten by the result
};
enum class MmaType : u32 { kF16, kBf16, kTf32 };
void mma(Lane* lane, MmaType type, MmaOperands* operands, u32 count, u32 site);

// --- fences --------------------------------------------------------------------------------------

// For threads of other blocks; before a release and behind an acquire instruction too.
void fence_blocks(Lane* lane);

// --- block barriers ----------------------------------------------------------------------------

inline constexpr u32 kWholeBlock = 0;  // no thread count given
struct Ballot {
  u32 predicate;
  u32 threads;
};
enum class Alignment : bool { kAny, kAligned };
// bar.sync without a ballot; bar.red replaces `own` by the sum of all.
void barrier_sync(Lane* lane, Alignment alignment, u32 barrier, u32 threads, u32 site,
                  Ballot* own = nullptr);
void barrier_arrive(Lane* lane, u32 barrier, u32 threads, u32 site);

// --- asynchronous copies -----------------------------------------------------------------------

template <u32 kBytes>  // 4, 8 or 16
void cp_async(Lane* lane, u32 destination, u64 source, u32 source_bytes, u32 site);
void cp_async_commit(Lane* lane);
void cp_async_wait_group(Lane* lane, u32 pending_groups);

// --- the rest ----------------------------------------------------------------------------------

[[noreturn, gnu::cold]] void fail_endless_loop(Lane* lane, u32 site);

// Every backward branch passes here, so that a kernel that never ends is reported.
inline void count_backward_branch(Lane* lane, u32 site) {
  if (EMULATOR_UNLIKELY(--lane->branch_budget < 0)) fail_endless_loop(lane, site);
}

}  // namespace emulator
