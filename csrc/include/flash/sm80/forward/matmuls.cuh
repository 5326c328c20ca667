// The two matmuls of attention on one KV block, per warp: S = Q K^T and O += P V.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/mma.cuh"
#include "flash/sm80/config.h"
#include "flash/tile/operand.cuh"

namespace flash::sm80 {

// `TheTile`: in whose rows the operands lie, which may be wider than they are.
template <FlashForwardKernelConfig kConfig,
          typename TheTile = SharedTile<kConfig.d_head, kConfig.swizzled>>
struct Matmuls {
  static constexpr int kMTiles = kConfig.rows_per_warp() / 16;  // 16-row tiles of a warp
  static constexpr int kDTiles = kConfig.d_head / 16;           // k-tiles of S = Q K^T
  static constexpr int kKvTiles = kConfig.B_c / 16;             // k-tiles of O += P V

  using Tile = TheTile;
  using Lane = LaneAddress<Tile>;
  template <int kTotal, int kLoad>
  using Schedule = LoadSchedule<kTotal, kLoad, kConfig.mma_double_buffer_loads>;
  using QSchedule = Schedule<kDTiles, kConfig.Q_mma_load_K_tiles>;
  using KSchedule = Schedule<kDTiles, kConfig.K_mma_load_K_tiles>;
  using VSchedule = Schedule<kKvTiles, kConfig.V_mma_load_K_tiles>;

  static constexpr int kKOffset = kConfig.q_bytes();
  static constexpr int kVOffset = kConfig.q_bytes() + kConfig.kv_bytes();
  using QOperand = Operand<Tile, 0, kMTiles, QSchedule, /*kKAlongRows=*/false>;
  using KOperand = Operand<Tile, kKOffset, kKvTiles, KSchedule, /*kKAlongRows=*/false>;
  using VOperand = Operand<Tile, kVOffset, kDTiles, VSchedule, /*kKAlongRows=*/true>;

  using Scores = float[kMTiles][2 * kKvTiles][4];
  using Output = float[kMTiles][2 * kDTiles][4];

  // scores = Q K^T. A Q that is held whole was loaded before the loop over KV blocks.
  FLASH_DEVICE static void scores(Scores& s, QOperand& q, const Lane& q_lane, const Lane& k_lane) {
    clear(s);
    add_scores(s, q, q_lane, k_lane);
  }

  // scores += Q K^T.
  FLASH_DEVICE static void add_scores(Scores& s, QOperand& q, const Lane& q_lane,
                                      const Lane& k_lane) {
    KOperand k;
    if constexpr (!QSchedule::kWhole) q.prologue(q_lane);
    k.prologue(k_lane);
    static_for<0, kDTiles>([&](auto t) {
      q.template before_mma<t>(q_lane);
      k.template before_mma<t>(k_lane);
#pragma unroll
      for (int n = 0; n < kKvTiles; ++n) {
        const Fragment& b = k.at(t, n);
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          ptx::mma_m16n8k16<kConfig.dtype>(s[m][2 * n], q.at(t, m), b[0], b[1]);
          ptx::mma_m16n8k16<kConfig.dtype>(s[m][2 * n + 1], q.at(t, m), b[2], b[3]);
        }
      }
    });
  }

  // output += P V, where P are the exponentiated scores, rounded to 16 bits.
  FLASH_DEVICE static void accumulate(Output& o, const Scores& p, const Lane& v_lane) {
    VOperand v;
    v.prologue(v_lane);
    static_for<0, kKvTiles>([&](auto t) {
      v.template before_mma<t>(v_lane);
      Fragment a[kMTiles];
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) pack_scores(a[m], p[m][2 * t], p[m][2 * t + 1]);
#pragma unroll
      for (int n = 0; n < kDTiles; ++n) {
        const Fragment& b = v.at(t, n);
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          ptx::mma_m16n8k16<kConfig.dtype>(o[m][2 * n], a[m], b[0], b[1]);
          ptx::mma_m16n8k16<kConfig.dtype>(o[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    });
  }

  template <int kTiles>
  FLASH_DEVICE static void clear(float (&c)[kMTiles][kTiles][4]) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) c[m][n][i] = 0.0f;
      }
    }
  }

 private:
  // Two neighbouring 16x8 accumulators are, rounded, exactly one 16x16 A operand.
  FLASH_DEVICE static void pack_scores(Fragment& a, const float (&left)[4],
                                       const float (&right)[4]) {
    a[0] = ptx::pack<kConfig.dtype>(left[0], left[1]);
    a[1] = ptx::pack<kConfig.dtype>(left[2], left[3]);
    a[2] = ptx::pack<kConfig.dtype>(right[0], right[1]);
    a[3] = ptx::pack<kConfig.dtype>(right[2], right[3]);
  }
};

}  // namespace flash::sm80
