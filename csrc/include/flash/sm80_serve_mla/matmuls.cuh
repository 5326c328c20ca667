// The two matmuls of a block of keys, whose first columns are the values.
//
// A warp has 16 rows and a slice of the keys of the scores, and all rows and some columns of the
// output: weights go from warp to warp through shared memory, values are read once.
#pragma once

#include "flash/ptx/mma.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/sm80_serve_mla/place.cuh"
#include "flash/tile/operand.cuh"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve_mla {

template <AmpereMlaKernelConfig kConfig>
struct LatentMatmuls {
  using Rows = SharedTile<kConfig.d_head, true>;  // of queries and keys
  using Weights = SharedTile<kConfig.B_c, true>;
  using RowLane = LaneAddress<Rows>;
  using WeightLane = LaneAddress<Weights>;
  static constexpr int kMTiles = kConfig.B_r / 16;
  static constexpr int kTiles = kConfig.slice_keys() / 8;       // n-tiles of the scores
  static constexpr int kKeyTiles = kConfig.B_c / 16;            // k-tiles of the output
  static constexpr int kColumns = kConfig.warp_columns() / 16;  // pairs of n-tiles of the output
  // Of the scores that a warp multiplies, which are those of two slices where two share the depth.
  static constexpr int kParts = kConfig.depth_parts();
  static constexpr int kDepth = kConfig.d_head / 16 / kParts;  // k-tiles
  static constexpr int kPairs = kTiles * kParts / 2;           // of n-tiles
  static_assert(kTiles * kParts % 2 == 0);
  // Sums of every second k-tile, so that few multiplications wait for each other.
  static constexpr int kChains = kPairs > 1 ? 1 : 2;

  using Scores = float[kTiles][4];
  using Output = float[kMTiles][2 * kColumns][4];

  // Parts take turns at every two k-tiles, whose places in a row differ in one bit.
  static constexpr int k_tile(int step) { return kParts == 1 ? step : step / 2 * 4 + step % 2; }
  FLASH_DEVICE static RowLane lane_of(uint32_t rows, const Place<kConfig>& at, MatrixOrder order) {
    RowLane lane(rows, at.lane, order);
    if constexpr (kParts > 1) lane.base ^= at.part() * Rows::xor_bytes(4);
    return lane;
  }

  // A warp's rows of queries: in registers, or where they lie.
  struct Queries {
    Fragment fragments[kConfig.keeps_queries() ? kDepth : 1];
    RowLane lane;

    // `rows`: shared address of the tile's first row.
    FLASH_DEVICE Queries(uint32_t rows, const Place<kConfig>& at)
        : lane(lane_of(rows + at.warp_row * Rows::kRowBytes, at, MatrixOrder::kRowsFirst)) {
      if constexpr (kConfig.keeps_queries()) {
        static_for<0, kDepth>([&](auto t) {
          constexpr int kStep = t;
          lane.template load<0, 0, k_tile(kStep), false>(fragments[kStep]);
        });
      }
    }

    template <int kStep>
    FLASH_DEVICE const Fragment& at(const Fragment (&loaded)[2]) const {
      if constexpr (kConfig.keeps_queries()) {
        return fragments[kStep];
      } else {
        return loaded[kStep % 2];
      }
    }
  };

  // scores = Q K^T of this warp's slice of a block. The operands of the next step are on their way
  // while a step multiplies.
  FLASH_DEVICE static void scores(Scores& s, const Queries& queries, uint32_t block,
                                  const Place<kConfig>& at) {
    const int first_key = at.first_column / (kPairs * 16) * (kPairs * 16);
    const RowLane keys =
        lane_of(block + first_key * Rows::kRowBytes, at, MatrixOrder::kColumnsFirst);
    RowLane rows = queries.lane;
    rows.forget();  // they are the same for all blocks, and would be kept
    Fragment k[2][kPairs];
    Fragment q[2];
    float sums[kChains][2 * kPairs][4] = {};
    const auto load = [&](auto step) {
      constexpr int kStep = step;
      if constexpr (kStep < kDepth) {
        static_for<0, kPairs>([&](auto n) {
          constexpr int kPair = n;
          keys.template load<0, kPair, k_tile(kStep), false>(k[kStep % 2][kPair]);
        });
        if constexpr (!kConfig.keeps_queries()) {
          rows.template load<0, 0, k_tile(kStep), false>(q[kStep % 2]);
        }
      }
    };
    load(Int<0>{});
    static_for<0, kDepth>([&](auto step) {
      constexpr int kStep = step;
      load(Int<kStep + 1>{});
      const Fragment& a = queries.template at<kStep>(q);
      auto& of_chain = sums[kStep % kChains];
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        const Fragment& b = k[kStep % 2][n];
        ptx::mma_m16n8k16<kConfig.dtype>(of_chain[2 * n], a, b[0], b[1]);
        ptx::mma_m16n8k16<kConfig.dtype>(of_chain[2 * n + 1], a, b[2], b[3]);
      }
    });
#pragma unroll
    for (int chain = 1; chain < kChains; ++chain) {
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[0][n][i] += sums[chain][n][i];
      }
    }
    own_slice(s, sums[0], at);
  }

  // output += P V, of this warp's columns.
  FLASH_DEVICE static void accumulate(Output& o, uint32_t block, const Place<kConfig>& at) {
    WeightLane p_lane(at.weights(), at.lane, MatrixOrder::kRowsFirst);
    p_lane.forget();  // as those of the queries
    const RowLane v_lane(block + at.warp * kConfig.warp_columns() * bytes_of(kConfig.dtype),
                         at.lane, MatrixOrder::kRowsFirst);
    static_for<0, kKeyTiles>([&](auto t) {
      constexpr int kTile = t;
      Fragment p[kMTiles];
      static_for<0, kMTiles>([&](auto m) {
        constexpr int kRow = m;
        p_lane.template load<0, kRow, kTile, false>(p[kRow]);
      });
      static_for<0, kColumns>([&](auto n) {
        constexpr int kColumn = n;
        Fragment v;
        v_lane.template load<0, kTile, kColumn, true>(v);
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          ptx::mma_m16n8k16<kConfig.dtype>(o[m][2 * kColumn], p[m], v[0], v[1]);
          ptx::mma_m16n8k16<kConfig.dtype>(o[m][2 * kColumn + 1], p[m], v[2], v[3]);
        }
      });
    });
  }

 private:
  // The scores of this warp's slice, whose other part of the depth another warp has.
  FLASH_DEVICE static void own_slice(Scores& s, const float (&sums)[2 * kPairs][4],
                                     const Place<kConfig>& at) {
    if constexpr (kParts == 1) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[n][i] = sums[n][i];
      }
    } else {
      static_assert(kTiles == 1);
      const bool is_first = at.part() == 0;
      float own[4], other[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        own[i] = is_first ? sums[0][i] : sums[1][i];
        other[i] = is_first ? sums[1][i] : sums[0][i];
      }
      at.given(at.warp) = {other[0], other[1], other[2], other[3]};
      ptx::bar_sync(1 + at.warp / kParts, kParts * 32);
      const float4 received = at.given(at.warp ^ 1);
      s[0][0] = own[0] + received.x;
      s[0][1] = own[1] + received.y;
      s[0][2] = own[2] + received.z;
      s[0][3] = own[3] + received.w;
    }
  }
};

}  // namespace flash::sm80_serve_mla
