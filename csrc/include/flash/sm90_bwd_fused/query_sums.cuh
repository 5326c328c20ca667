// dQ: each thread block adds its keys' share to sums in global memory.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/reduce.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/ptx/wgmma.cuh"
#include "flash/sm90_bwd_fused/layout.cuh"
#include "flash/sm90_bwd_fused/transposed.cuh"
#include "flash/tile/matrix_descriptor.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd_fused {

// A group's part of a block of dQ^T = K^T dS^T: 64 elements of the head, the matmul's rows, of
// kQueries queries, its columns. With 64 elements the groups share out the queries, with more the
// elements; of 96 the second group has 32, and two of its warps multiply for nothing.
//
// In global memory the sums of a block lie in the order of the accumulators: for each warp, and
// each of its columns' 8 by 8, four sums of each lane. Nobody reads them but the kernel kRound.
template <FusedBackwardKernelConfig kConfig>
struct QuerySums {
  static constexpr int kKeys = kConfig.keys_rows;
  static constexpr int kElements = 64;
  static constexpr int kElementParts = kConfig.sums_elements() / kElements;
  static constexpr int kQueryParts = FusedBackwardKernelConfig::kGroups / kElementParts;
  static constexpr int kQueries = kConfig.keys_columns / kQueryParts;
  static constexpr int kPieces = kQueries / 8;  // of 16 bytes of each lane
  static constexpr int kPieceBytes = 32 * 16;   // of a warp
  static constexpr int kWarpBytes = kPieces * kPieceBytes;
  static constexpr int kWarps = kConfig.sums_bytes() / kWarpBytes;  // that have a part, the first
  static_assert(kElementParts * kQueryParts == FusedBackwardKernelConfig::kGroups);
  static_assert(kWarpBytes * kWarps == kConfig.sums_bytes());

  using Sums = float[kQueries / 2];

  FLASH_DEVICE static int first_element(int group) { return group % kElementParts * kElements; }
  FLASH_DEVICE static int first_query(int group) { return group / kElementParts * kQueries; }
};

// The matmul, and the way out of the multiprocessor, of one warp.
template <FusedBackwardKernelConfig kConfig, typename L>
struct QuerySumsAdder : QuerySums<kConfig> {
  using Base = QuerySums<kConfig>;
  using typename Base::Sums;
  using Keys = MatrixDescriptor<kConfig.two_pass().swizzle_bytes()>;
  using DsRows = MatrixDescriptor<kChunkRowBytes>;
  static constexpr int kGroupRows = sm90_bwd::HopperBackwardKernelConfig::kGroupRows;
  static constexpr int kGroupSteps = kGroupRows / 16;  // k-steps of a group's keys

  const L& smem;
  const int group;
  const int warp;  // of the group
  const int lane;

  // Asynchronous, as one group.
  FLASH_DEVICE void issue(int ds_stage, Sums& sums) const {
    constexpr int kDsChunk = kConfig.keys_columns * kChunkRowBytes;
    constexpr int kKRowBytes = kConfig.two_pass().swizzle_bytes();
    constexpr int kKChunk = kGroupRows * kKRowBytes;
    constexpr int kElementBytes = bytes_of(kConfig.dtype);
    // Behind the head's last element the matmul reads what follows: keys or V, for no sum.
    uint32_t elements = smem.own1(0) + Base::first_element(group) * kElementBytes * kGroupRows;
    ptx::forget(elements);  // else ptxas keeps every step's descriptor
    const auto keys = Keys::mn_major(elements, kKChunk);
    const auto ds = DsRows::k_major(smem.ds(ds_stage) + Base::first_query(group) * kChunkRowBytes);
    ptx::wgmma_touch(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Base::kKeys / 16; ++step) {
      // The K of a group lies L::kGroupBytes behind that of the one before.
      const int row = step / kGroupSteps * (L::kGroupBytes / kKRowBytes / 16);
      ptx::Wgmma<Base::kQueries>::template ss_a_mn<kConfig.dtype>(
          sums, keys.mn_step(row + step % kGroupSteps), ds.k_step(step, kDsChunk), step != 0);
    }
    ptx::wgmma_commit_group();
  }

  // Adds them to the sums of a block of queries, which begin at `block`. Behind wait_staging_free.
  FLASH_DEVICE void add(const Sums& sums, float* block) const {
    if (Base::kWarps < FusedBackwardKernelConfig::kWarps && group * 4 + warp >= Base::kWarps)
      return;
    const int place = (group * 4 + warp) * Base::kWarpBytes;
    char* const mine = reinterpret_cast<char*>(block) + place;
    if constexpr (kConfig.add_by == AddBy::kRegisters) {
      float* const to = reinterpret_cast<float*>(mine + lane * 16);
      static_for<0, Base::kPieces>([&](auto piece) {
        constexpr int kFirst = piece * 4;
        ptx::red_add_f32x4(to + piece * (Base::kPieceBytes / 4), sums[kFirst], sums[kFirst + 1],
                           sums[kFirst + 2], sums[kFirst + 3]);
      });
    } else {
      const uint32_t staging = smem.staging() + place;
      static_for<0, Base::kPieces>([&](auto piece) {
        constexpr int kFirst = piece * 4;
        ptx::st_shared_16<piece * Base::kPieceBytes>(
            staging + lane * 16,
            {{__float_as_uint(sums[kFirst]), __float_as_uint(sums[kFirst + 1]),
              __float_as_uint(sums[kFirst + 2]), __float_as_uint(sums[kFirst + 3])}});
      });
      ptx::fence_proxy_async_shared();  // the staged sums, for the copy engine
      __syncwarp();                     // ... of all lanes
      if (lane == 0) {
        ptx::bulk_reduce_add_f32(mine, staging, Base::kWarpBytes);
        ptx::tma_store_commit();
      }
    }
  }

  // Until the copy engine has read what this warp staged last.
  FLASH_DEVICE void wait_staging_free() const {
    if constexpr (kConfig.add_by != AddBy::kCopies) return;
    if (lane == 0) ptx::tma_store_wait_read<0>();
    __syncwarp();
  }
};

}  // namespace flash::sm90_bwd_fused
