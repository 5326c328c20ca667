// dQ from sums to which one thread block alone has not added yet: it does not add its share in
// global memory, but in registers, to what the copy engine has brought of the others'; and rounds
// it.
//
// Each warp of a group does so in the place of its own sums in the staging buffer: kQueries rows of
// 16 elements (query_sums.cuh), in the order of a box with 32-byte rows (PTX ISA 5.5.7, 32-byte
// swizzle: halves of rows 4 to 7 of 8 are exchanged).
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/ptx/stmatrix.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90_bwd_fused/args.h"
#include "flash/sm90_bwd_fused/query_sums.cuh"

namespace flash::sm90_bwd_fused {

template <FusedBackwardKernelConfig kConfig>
struct RoundedSums {
  using Part = QuerySums<kConfig>;
  static constexpr int kRowBytes = sm90_bwd::kNarrowRowBytes;
  static constexpr int kChunk = kRowBytes / bytes_of(kConfig.dtype);  // elements

  // Adds the others' sums: a warp, those of a part that begins at `part`.
  FLASH_DEVICE static void add(typename Part::Sums& sums, uint32_t part, uint32_t lane) {
    ptx::forget(lane);  // else the loop that multiplies keeps what comes of it
    static_for<0, Part::kPieces>([&](auto piece) {
      const ptx::Vector16 others = ptx::ld_shared_16<piece * Part::kPieceBytes>(part + lane * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[piece * 4 + i] += __uint_as_float(others.word[i]);
    });
  }

  // Scales, and rounds, when all lanes have read.
  FLASH_DEVICE static void round(const typename Part::Sums& sums, uint32_t part, float scale,
                                 uint32_t lane) {
    ptx::forget(lane);
    const uint32_t row = lane / 16 * 8 + lane % 8;
    const uint32_t to = part + row * kRowBytes + (lane / 8 % 2 ^ row / 4 % 2) * 16;
    static_for<0, Part::kQueries / 16>([&](auto step) {
      uint32_t rounded[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int first = step * 8 + i * 2;
        rounded[i] = ptx::pack<kConfig.dtype>(sums[first] * scale, sums[first + 1] * scale);
      }
      ptx::stmatrix_x4_trans<step * 16 * kRowBytes>(to, rounded);
    });
  }

  // Has the copy engine store what a group has rounded, where there are rows of dQ for it: one
  // thread. `first_query`: of the block.
  FLASH_DEVICE static void store(uint32_t staging, int group, const TensorMap& d_q, int first_query,
                                 int head, int batch) {
    const int n_warps = Part::group_bytes(group) / Part::kWarpBytes;
    const uint32_t part = staging + Part::group_place(group);
    const int chunk = Part::first_element(group) / kChunk;
#pragma unroll
    for (int warp = 0; warp < n_warps; ++warp) {
      ptx::tma_store_5d(&d_q, part + warp * Part::kWarpBytes, 0,
                        first_query + Part::first_query(group), chunk + warp, head, batch);
    }
  }
};

}  // namespace flash::sm90_bwd_fused
