// Steps 1 to 7: FlashAttention-2 written down plainly, with the switches of the configuration.
//
// Every thread works out every address afresh from row and column, every block starts from cleared
// scores, every maximum is followed at once. What the switches can do, they do (steps 2 to 7);
// what the compiler makes of the rest is the subject of steps 8 to 15.
#pragma once

#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/ldmatrix.cuh"
#include "flash/ptx/mma.cuh"
#include "flash/tile/load_schedule.h"
#include "flash/tile/static_for.cuh"
#include "previous_kernels/common/problem.cuh"
#include "previous_kernels/common/rows.cuh"

namespace flash::previous::step01 {

using common::Fragment;

// Rows [first_row, first_row + kRows) of a tensor to a shared tile, by the whole thread block.
template <FlashForwardKernelConfig kConfig, int kRows>
FLASH_DEVICE void copy_rows(uint32_t tile, const char* tensor, int first_row, int64_t row_bytes) {
  using Tile = SharedTile<kConfig.d_head, kConfig.swizzled>;
#pragma unroll
  for (int step = 0; step < kRows * Tile::kChunksPerRow / kConfig.n_threads(); ++step) {
    const int piece = step * kConfig.n_threads() + threadIdx.x;
    const int row = piece / Tile::kChunksPerRow;
    const int chunk = piece % Tile::kChunksPerRow;
    ptx::cp_async_ca_16<0>(tile + Tile::offset(row, chunk),
                           tensor + (first_row + row) * row_bytes + chunk * Tile::kChunkBytes);
  }
}

// A matmul operand in registers. kKAlongRows: its k dimension runs down the rows of the tile (V).
template <FlashForwardKernelConfig kConfig, int kOuterTiles, int kKTiles, int kLoad,
          bool kKAlongRows>
struct Operand {
  using Tile = SharedTile<kConfig.d_head, kConfig.swizzled>;
  using Schedule = LoadSchedule<kKTiles, kLoad, kConfig.mma_double_buffer_loads>;

  Fragment fragments[Schedule::kSlots][kOuterTiles];

  template <int kKTile>
  FLASH_DEVICE void load_k_tile(uint32_t tile) {
    const int lane = threadIdx.x % common::kWarp;
#pragma unroll
    for (int outer = 0; outer < kOuterTiles; ++outer) {
      const int row = (kKAlongRows ? kKTile : outer) * 16 + lane % 16;
      const int chunk = (kKAlongRows ? outer : kKTile) * 2 + lane / 16;
      const uint32_t address = tile + Tile::offset(row, chunk);
      if constexpr (kKAlongRows) {
        ptx::ldmatrix_x4_trans<0>(address, fragments[Schedule::slot(kKTile)][outer]);
      } else {
        ptx::ldmatrix_x4<0>(address, fragments[Schedule::slot(kKTile)][outer]);
      }
    }
  }

  FLASH_DEVICE void prologue(uint32_t tile) {
    static_for<0, Schedule::kPrologueTiles>([&](auto t) { load_k_tile<t>(tile); });
  }
  template <int kKTile>
  FLASH_DEVICE void before_mma(uint32_t tile) {
    static_for<Schedule::first(kKTile), Schedule::last(kKTile)>(
        [&](auto t) { load_k_tile<t>(tile); });
  }
  FLASH_DEVICE const Fragment& at(int k_tile, int outer) const {
    return fragments[Schedule::slot(k_tile)][outer];
  }
};

template <FlashForwardKernelConfig kConfig>
struct Step {
  static constexpr DType kDType = kConfig.dtype;
  static constexpr int kDTiles = kConfig.d_head / 16;
  static constexpr int kKvTiles = kConfig.B_c / 16;
  using Tile = SharedTile<kConfig.d_head, kConfig.swizzled>;
  using Scores = float[2 * kKvTiles][4];
  using Output = float[2 * kDTiles][4];
  using Q = Operand<kConfig, 1, kDTiles, kConfig.Q_mma_load_K_tiles, false>;
  using K = Operand<kConfig, kKvTiles, kDTiles, kConfig.K_mma_load_K_tiles, false>;
  using V = Operand<kConfig, kDTiles, kKvTiles, kConfig.V_mma_load_K_tiles, true>;

  FLASH_DEVICE static void multiply_scores(Scores& s, Q& q, uint32_t sQ, uint32_t sK) {
    common::clear(s);
    K k;
    if constexpr (!Q::Schedule::kWhole) q.prologue(sQ);
    k.prologue(sK);
    static_for<0, kDTiles>([&](auto t) {
      q.template before_mma<t>(sQ);
      k.template before_mma<t>(sK);
#pragma unroll
      for (int n = 0; n < kKvTiles; ++n) {
        const Fragment& b = k.at(t, n);
        ptx::mma_m16n8k16<kDType>(s[2 * n], q.at(t, 0), b[0], b[2]);
        ptx::mma_m16n8k16<kDType>(s[2 * n + 1], q.at(t, 0), b[1], b[3]);
      }
    });
  }

  FLASH_DEVICE static void accumulate(Output& o, const Scores& p, uint32_t sV) {
    V v;
    v.prologue(sV);
    static_for<0, kKvTiles>([&](auto t) {
      v.template before_mma<t>(sV);
      Fragment a;
      common::pack_operand<kDType>(a, p[2 * t], p[2 * t + 1]);
#pragma unroll
      for (int n = 0; n < kDTiles; ++n) {
        const Fragment& b = v.at(t, n);
        ptx::mma_m16n8k16<kDType>(o[2 * n], a, b[0], b[1]);
        ptx::mma_m16n8k16<kDType>(o[2 * n + 1], a, b[2], b[3]);
      }
    });
  }
};

// Rows lane / 4 and + 8 of the warp's tile. Unless `optimized_softmax`, scores are scaled first and
// exponentiated by a subtraction, a multiplication and an EX2; with it, one FFMA and an EX2.
template <FlashForwardKernelConfig kConfig>
struct Softmax {
  static constexpr bool kFolded = kConfig.optimized_softmax;
  using Scores = typename Step<kConfig>::Scores;
  using Output = typename Step<kConfig>::Output;

  float scale;
  float row_max[2] = {common::kNegativeInfinity, common::kNegativeInfinity};
  float row_sum[2] = {0.0f, 0.0f};

  FLASH_DEVICE void update(Scores& s, Output& o) {
    constexpr int kTiles = 2 * Step<kConfig>::kKvTiles;
    const float exponent_scale = kFolded ? scale * common::kLog2e : common::kLog2e;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = row_max[half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          if constexpr (!kFolded) s[n][i] = ptx::mul_rn(s[n][i], scale);
          largest = fmaxf(largest, s[n][i]);
        }
      }
      largest = common::quad_max(largest);
      const float alpha = ptx::ex2(ptx::mul_rn(row_max[half] - largest, exponent_scale));
      row_max[half] = largest;
      float sum = ptx::mul_rn(row_sum[half], alpha);
      const float largest_scaled = largest * exponent_scale;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          if constexpr (kFolded) {
            s[n][i] = ptx::ex2(ptx::fma_rn(s[n][i], exponent_scale, -largest_scaled));
          } else {
            s[n][i] = ptx::ex2(ptx::mul_rn(s[n][i] - largest, exponent_scale));
          }
          sum += s[n][i];
        }
      }
      row_sum[half] = sum;
#pragma unroll
      for (int n = 0; n < 2 * Step<kConfig>::kDTiles; ++n) {
        o[n][2 * half] *= alpha;
        o[n][2 * half + 1] *= alpha;
      }
    }
  }
};

// Divides by the row sums and writes the warp's rows through its own part of Q's shared memory.
template <FlashForwardKernelConfig kConfig>
FLASH_DEVICE void finish(const common::Problem<kConfig>& problem, const Softmax<kConfig>& softmax,
                         typename Step<kConfig>::Output& o, uint32_t sQ, int warp_row) {
  using Tile = typename Step<kConfig>::Tile;
  const int lane = threadIdx.x % common::kWarp;
  float log_sum_exp[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = common::quad_sum(softmax.row_sum[half]);
    const float largest = softmax.row_max[half] * (softmax.kFolded ? softmax.scale : 1.0f);
    log_sum_exp[half] = ptx::fma_rn(ptx::lg2(sum), common::kLn2, largest);
#pragma unroll
    for (int n = 0; n < 2 * Step<kConfig>::kDTiles; ++n) {
      const uint32_t packed =
          ptx::pack<kConfig.dtype>(o[n][2 * half] / sum, o[n][2 * half + 1] / sum);
      const int row = warp_row + half * 8 + lane / 4;
      ptx::st_shared_4<0>(sQ + Tile::offset(row, n) + lane % 4 * 4, packed);
    }
  }
  __syncwarp();  // the warp's rows are staged before other lanes read them
  common::store_rows<Tile, 16>(sQ + warp_row * Tile::kRowBytes,
                               problem.o + warp_row * problem.o_row_bytes, problem.o_row_bytes,
                               lane);
  if (problem.lse != nullptr) common::store_lse(log_sum_exp, problem.lse + warp_row, lane);
}

template <FlashForwardKernelConfig kConfig>
FLASH_DEVICE void forward(const ForwardArgs& args) {
  using Mm = Step<kConfig>;
  static_assert(kConfig.async_copy, "the road begins with cp.async");
  static_assert(kConfig.rows_per_warp() == 16, "one 16-row tile a warp");

  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t sQ = ptx::shared_address(shared_memory);
  const uint32_t sK = sQ + kConfig.q_bytes();
  const uint32_t sV = sK + kConfig.kv_bytes();
  const int warp_row = threadIdx.x / common::kWarp * 16;
  const uint32_t warp_q = sQ + warp_row * Mm::Tile::kRowBytes;
  const common::Problem<kConfig> problem(args);

  const auto load_k = [&](int block) {
    copy_rows<kConfig, kConfig.B_c>(sK, problem.k, block * kConfig.B_c, problem.k_row_bytes);
    ptx::cp_async_commit_group();
  };
  const auto load_v = [&](int block) {
    copy_rows<kConfig, kConfig.B_c>(sV, problem.v, block * kConfig.B_c, problem.v_row_bytes);
    ptx::cp_async_commit_group();
  };

  copy_rows<kConfig, kConfig.B_r>(sQ, problem.q, 0, problem.q_row_bytes);
  load_k(0);  // Q travels in the group of the first K block
  if constexpr (kConfig.eager_load_blocks) {
    load_v(0);
    ptx::cp_async_wait_group<1>();
  } else {
    ptx::cp_async_wait_group<0>();
  }
  __syncthreads();  // Q and the first K block are visible to every warp

  typename Mm::Q q;
  if constexpr (Mm::Q::Schedule::kWhole) q.prologue(warp_q);
  Softmax<kConfig> softmax{.scale = args.softmax_scale};
  typename Mm::Output o;
  common::clear(o);

  for (int block = 0; block < problem.n_kv_blocks; ++block) {
    const bool has_next = block + 1 < problem.n_kv_blocks;
    typename Mm::Scores s;
    Mm::multiply_scores(s, q, warp_q, sK);
    if constexpr (kConfig.eager_load_blocks) {
      ptx::cp_async_wait_group<0>();
      __syncthreads();  // V is visible; every warp has read K, so its buffer is free
      if (has_next) load_k(block + 1);
      softmax.update(s, o);
    } else {
      softmax.update(s, o);
      load_v(block);  // the V buffer is free since the barrier that made this K visible
      ptx::cp_async_wait_group<0>();
      __syncthreads();  // V is visible; every warp has read K, so its buffer is free
    }
    Mm::accumulate(o, s, sV);
    if (!has_next) break;
    if constexpr (!kConfig.eager_load_blocks) load_k(block + 1);
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the next K is visible; every warp has read V, so its buffer is free
    if constexpr (kConfig.eager_load_blocks) load_v(block + 1);
  }
  finish<kConfig>(problem, softmax, o, sQ, warp_row);
}

}  // namespace flash::previous::step01
