// dQ: each thread block adds its keys' share to sums in global memory.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/reduce.cuh"
#include "flash/ptx/scheduling.cuh"
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
// each of its columns' 8 by 8, four sums of each lane. Nobody reads them but who rounds them.
template <FusedBackwardKernelConfig kConfig>
struct QuerySums {
  static constexpr int kKeys = kConfig.keys_rows;
  static constexpr int kElements = 64;
  static constexpr int kElementParts = kConfig.sums_elements() / kElements;
  static constexpr int kQueryParts = FusedBackwardKernelConfig::kGroups / kElementParts;
  static constexpr int kQueries = kConfig.group_queries();
  static constexpr int kPieces = kQueries / 8;  // of 16 bytes of each lane
  static constexpr int kPieceBytes = 32 * 16;   // of a warp
  static constexpr int kWarpBytes = kPieces * kPieceBytes;
  static constexpr int kWarps = kConfig.sums_bytes() / kWarpBytes;  // that have a part, the first
  static constexpr int kGroupWarps = sm90_bwd::HopperBackwardKernelConfig::kGroupWarps;
  static_assert(kElementParts * kQueryParts == FusedBackwardKernelConfig::kGroups);
  static_assert(kWarpBytes * kWarps == kConfig.sums_bytes());

  using Sums = float[kQueries / 2];

  FLASH_DEVICE static int first_element(int group) { return group % kElementParts * kElements; }
  FLASH_DEVICE static int first_query(int group) { return group / kElementParts * kQueries; }

  // The group's part of the sums of a block of queries, which its warps share out.
  FLASH_DEVICE static constexpr int group_place(int group) {
    return group * kGroupWarps * kWarpBytes;
  }
  FLASH_DEVICE static constexpr int group_bytes(int group) {
    const int rest = kWarps - group * kGroupWarps;
    return (rest < kGroupWarps ? rest : kGroupWarps) * kWarpBytes;
  }
};

// Which rows of the sums belong to the queries of a tile: there are fewer than 2^31.
template <typename L>
struct SumsRows {
  int first;   // of the group's first head
  int n_rows;  // of a head

  FLASH_DEVICE SumsRows(const BackwardArgs& call, const typename L::Work& work)
      : n_rows(static_cast<int>(L::Calls::template stats_rows<L::kColumns>(call))) {
    const int head =
        static_cast<int>(work.batch) * call.n_heads_q + static_cast<int>(work.head) * work.n_heads;
    first = head * n_rows + L::Calls::first_stats(work);
  }

  // To be read again and again: else ptxas divides every time.
  FLASH_DEVICE void keep() {
    first = static_cast<int>(ptx::hidden(first));
    n_rows = static_cast<int>(ptx::hidden(n_rows));
  }

  // The first one of the queries at `place`.
  FLASH_DEVICE int row(const Place& place) const {
    return first + place.head * n_rows + place.block * L::kColumns;
  }
};

// Where a row of sums begins.
template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE float* sums_of_row(const BackwardArgs& call, int row) {
  return call.d_q_sums + int64_t{row} * kConfig.d_head;
}

// The matmul, and the way out of the registers, of one warp.
template <FusedBackwardKernelConfig kConfig, typename L>
struct QuerySumsAdder : QuerySums<kConfig> {
  using Base = QuerySums<kConfig>;
  using typename Base::Sums;
  using Keys = MatrixDescriptor<kConfig.two_pass().swizzle_bytes()>;
  using DsRows = MatrixDescriptor<kChunkRowBytes>;
  static constexpr int kGroupRows = sm90_bwd::HopperBackwardKernelConfig::kGroupRows;
  static constexpr int kGroupSteps = kGroupRows / 16;  // k-steps of a group's keys
  // Behind the head's last element the matmul reads what follows: keys, or V. No sum needs it.
  static constexpr bool kReadsBehindKeys = kConfig.sums_elements() > kConfig.d_head;

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

  // Adds them to the sums of a block of queries, which begin at `block`.
  FLASH_DEVICE void add(const Sums& sums, float* block) const {
    if (!has_part()) return;
    char* const mine = reinterpret_cast<char*>(block) + place();
    float* const to = reinterpret_cast<float*>(mine + lane * 16);
    static_for<0, Base::kPieces>([&](auto piece) {
      constexpr int kFirst = piece * 4;
      ptx::red_add_f32x4(to + piece * (Base::kPieceBytes / 4), sums[kFirst], sums[kFirst + 1],
                         sums[kFirst + 2], sums[kFirst + 3]);
    });
  }

  // Leaves them where the buffer's sender finds them (sums_sender.cuh).
  FLASH_DEVICE void stage(const Sums& sums, int buffer) const {
    if (!has_part()) return;
    const uint32_t own = ptx::hidden(lane);  // else the loop keeps the address
    const uint32_t mine = part(buffer) + own * 16;
    static_for<0, Base::kPieces>([&](auto piece) {
      constexpr int kFirst = piece * 4;
      ptx::st_shared_16<piece * Base::kPieceBytes>(
          mine, {{__float_as_uint(sums[kFirst]), __float_as_uint(sums[kFirst + 1]),
                  __float_as_uint(sums[kFirst + 2]), __float_as_uint(sums[kFirst + 3])}});
    });
  }

  // Where those of the warp lie.
  FLASH_DEVICE uint32_t part(int buffer) const { return smem.staging(buffer) + place(); }

  FLASH_DEVICE bool has_part() const {
    return Base::kWarps == FusedBackwardKernelConfig::kWarps ||
           group * Base::kGroupWarps + warp < Base::kWarps;
  }

 private:
  FLASH_DEVICE int place() const { return Base::group_place(group) + warp * Base::kWarpBytes; }
};

}  // namespace flash::sm90_bwd_fused
