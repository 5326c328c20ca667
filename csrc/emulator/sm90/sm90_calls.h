// Hopper's instructions (sm_90a) as translated kernels call them: barriers in shared memory, bulk
// copies, warpgroup matmuls. `site` is the PTX line.
#pragma once

#include "device_calls.h"
#include "lane.h"
#include "types.h"

namespace emulator {

// --- mbarrier ----------------------------------------------------------------------------------

// kOrdered: releases to, or acquires from, threads of this block; kInCluster: of the cluster.
enum class Ordering : u32 { kRelaxed, kOrdered, kInCluster };
void mbarrier_init(Lane* lane, u32 address, u32 count, u32 site);
void mbarrier_inval(Lane* lane, u32 address, u32 site);
void mbarrier_expect_tx(Lane* lane, u32 address, u32 bytes, u32 site);
void mbarrier_complete_tx(Lane* lane, u32 address, u32 bytes, u32 site);
// Announces `expected_bytes`, then arrives; returns the phase arrived in, for the waits below.
u64 mbarrier_arrive(Lane* lane, u32 address, u32 count, u32 expected_bytes, Ordering ordering,
                    u32 site);
void mbarrier_arrive_in_cluster(Lane* lane, u32 address, u32 count, u32 expected_bytes,
                                Ordering ordering, u32 site);
// test_wait and try_wait: true once the phase is complete. Both let others run first and return
// false only where nobody else can go on.
bool mbarrier_wait_parity(Lane* lane, u32 address, u32 parity, Ordering ordering, u32 site);
bool mbarrier_wait_state(Lane* lane, u32 address, u64 state, Ordering ordering, u32 site);

// --- clusters ----------------------------------------------------------------------------------

// barrier.cluster.
void cluster_arrive(Lane* lane, Ordering ordering, Alignment alignment, u32 site);
void cluster_wait(Lane* lane, u32 site);
u32 map_to_rank(Lane* lane, u32 address, u32 rank, u32 site);
// st.async: `bytes` of `value` to a shared address of the cluster; they count at the mbarrier.
void store_async(Lane* lane, u32 address, const u8* value, u32 bytes, u32 barrier, u32 site);

// cp.async.bulk from shared memory of this block to any of the cluster, where the mbarrier is.
void bulk_copy_in_cluster(Lane* lane, u32 destination, u32 source, u32 bytes, u32 barrier,
                          u32 site);

// --- fences ------------------------------------------------------------------------------------

void fence_mbarrier_init(Lane* lane);
enum class Proxied : u32 { kShared = 1, kGlobal = 2, kAll = 3 };
void fence_proxy_async(Lane* lane, Proxied memory);

// --- bulk copies -------------------------------------------------------------------------------

void bulk_load(Lane* lane, u32 destination, u64 source, u32 bytes, u32 barrier, u32 site);
// kAdding: fp32 values, to what is there (cp.reduce).
enum class StoreBy : bool { kReplacing, kAdding };
void bulk_store(Lane* lane, u64 destination, u32 source, u32 bytes, StoreBy by, u32 site);
void tensor_load(Lane* lane, u32 rank, u32 destination, u64 map, const s32* place, u32 barrier,
                 u32 site);
// To the same places in all blocks of the cluster whose ranks are set in `blocks`.
void tensor_load_multicast(Lane* lane, u32 rank, u32 destination, u64 map, const s32* place,
                           u32 barrier, u32 blocks, u32 site);
void tensor_store(Lane* lane, u32 rank, u64 map, const s32* place, u32 source, u32 site);
// The operand of .L2::cache_hint, which is all that is looked at: there is no cache.
void check_cache_policy(Lane* lane, u64 policy, u32 site);
void bulk_commit_group(Lane* lane);
// Stores happen at once; but what nobody has waited for is known to nobody.
enum class Until : bool { kRead, kWritten };
void bulk_wait_group(Lane* lane, u32 pending_groups, Until until);

// --- warpgroup matmuls -------------------------------------------------------------------------

struct WgmmaForm {
  MmaType type;  // not kTf32
  u16 columns;   // N
  bool a_in_registers;
  bool a_transposed, b_transposed;  // MN-major
  s8 a_sign, b_sign;                // 1 or -1
};
// d has columns / 2 values and stays valid until the commit, when the matmul happens; a points to 4
// registers, or to the descriptor.
void wgmma(Lane* lane, const WgmmaForm& form, f32* d, const void* a, u64 b, bool accumulates,
           u32 site);
void wgmma_fence(Lane* lane, u32 site);
// Multiplies what is queued, for accumulators that do not stay where they are until the commit.
void wgmma_execute(Lane* lane, u32 site);
void wgmma_commit_group(Lane* lane, u32 site);
void wgmma_wait_group(Lane* lane, u32 pending_groups, u32 site);

// Where the translator cannot rule out that registers of a matmul are touched too early
// (py/flash_helpers/emulator/sm90/registers.py), it notes one side and checks at the other.
void wgmma_note(Lane* lane, u32 slot);
// An instruction touches registers of the wgmma noted at `slot`, which may be in flight.
void wgmma_check_done(Lane* lane, u32 slot, u32 wgmma_site, const char* registers, u32 site);
// A wgmma uses registers that the instruction noted at `slot` touched, maybe without a fence since.
void wgmma_check_fenced(Lane* lane, u32 slot, u32 access_site, const char* registers, u32 site);

// --- warp collectives --------------------------------------------------------------------------

// stmatrix.m8n8.b16: `count` of 1, 2 or 4 matrices from values[0..count).
void stmatrix(Lane* lane, u32 count, bool transposed, u32 address, const u32* values, u32 site);
struct ElectResult {
  u32 leader;
  bool is_leader;
};
ElectResult elect_sync(Lane* lane, u32 mask, u32 site);
enum class Registers : bool { kDecrease, kIncrease };
void setmaxnreg(Lane* lane, Registers change, u32 count, u32 site);

}  // namespace emulator
