// Step 14: copies bypass L1 (.cg), which would keep what is already in shared memory, and tell L2
// to fetch 128 bytes at a time.
#pragma once

#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/mma.cuh"
#include "flash/tile/operand.cuh"
#include "previous_kernels/common/problem.cuh"
#include "previous_kernels/common/rows.cuh"

namespace flash::previous::step14 {

// Row blocks of a tensor, from the last to the first, to a shared tile: this thread's pieces.
template <FlashForwardKernelConfig kConfig>
struct Stream {
  using Tile = SharedTile<kConfig.d_head, kConfig.swizzled>;
  static constexpr int kRowsPerStep = kConfig.n_threads() / Tile::kChunksPerRow;

  const char* next;
  int64_t step_bytes;
  uint32_t target;

  FLASH_DEVICE Stream(const char* rows, int64_t row_bytes, int last_row, uint32_t tile) {
    const int row = threadIdx.x / Tile::kChunksPerRow;
    const int chunk = threadIdx.x % Tile::kChunksPerRow;
    next = rows + (last_row + row) * row_bytes + chunk * Tile::kChunkBytes;
    step_bytes = kRowsPerStep * row_bytes;
    target = tile + Tile::offset(row, chunk);
  }

  template <int kRows>
  FLASH_DEVICE void load() {
    const char* source = next;
    static_for<0, kRows / kRowsPerStep>([&](auto step) {
      ptx::cp_async_16<step * kRowsPerStep * Tile::kRowBytes>(target, source);
      source += step_bytes;
    });
    next -= kRows / kRowsPerStep * step_bytes;
  }

  template <int kRows>
  FLASH_DEVICE void issue() {
    load<kRows>();
    ptx::cp_async_commit_group();
  }
};

template <FlashForwardKernelConfig kConfig>
struct Step {
  static constexpr DType kDType = kConfig.dtype;
  static constexpr int kDTiles = kConfig.d_head / 16;
  static constexpr int kKvTiles = kConfig.B_c / 16;
  static constexpr int kKOffset = kConfig.q_bytes();
  static constexpr int kVOffset = kConfig.q_bytes() + kConfig.kv_bytes();
  using Tile = SharedTile<kConfig.d_head, kConfig.swizzled>;
  using Lane = LaneAddress<Tile>;
  template <int kTotal, int kLoad>
  using Schedule = LoadSchedule<kTotal, kLoad, kConfig.mma_double_buffer_loads>;
  using Q = Operand<Tile, 0, 1, Schedule<kDTiles, kConfig.Q_mma_load_K_tiles>, false>;
  using K = Operand<Tile, kKOffset, kKvTiles, Schedule<kDTiles, kConfig.K_mma_load_K_tiles>, false>;
  using V = Operand<Tile, kVOffset, kDTiles, Schedule<kKvTiles, kConfig.V_mma_load_K_tiles>, true>;
  using Scores = float[2 * kKvTiles][4];
  using Output = float[2 * kDTiles][4];

  FLASH_DEVICE static void multiply_scores(Scores& s, const Q& q, const Lane& k_lane) {
    common::clear(s);
    K k;
    k.prologue(k_lane);
    static_for<0, kDTiles>([&](auto t) {
      k.template before_mma<t>(k_lane);
#pragma unroll
      for (int n = 0; n < kKvTiles; ++n) {
        const Fragment& b = k.at(t, n);
        ptx::mma_m16n8k16<kDType>(s[2 * n], q.at(t, 0), b[0], b[1]);
        ptx::mma_m16n8k16<kDType>(s[2 * n + 1], q.at(t, 0), b[2], b[3]);
      }
    });
  }

  FLASH_DEVICE static void accumulate(Output& o, const Scores& p, const Lane& v_lane) {
    V v;
    v.prologue(v_lane);
    static_for<0, kKvTiles>([&](auto t) {
      v.template before_mma<t>(v_lane);
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

// Rows lane / 4 and + 8 of the warp's tile: one FFMA and one EX2 an element.
template <FlashForwardKernelConfig kConfig>
struct Softmax {
  static constexpr int kSTiles = 2 * Step<kConfig>::kKvTiles;
  static constexpr int kOTiles = 2 * Step<kConfig>::kDTiles;
  using Scores = typename Step<kConfig>::Scores;
  using Output = typename Step<kConfig>::Output;

  float scale;
  float row_max[2];
  float row_sum[2];

  template <bool kFirst>
  FLASH_DEVICE void update(Scores& s, Output& o) {
    const float scale_log2 = scale * common::kLog2e;
    float largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) largest[half] = kFirst ? s[0][2 * half] : row_max[half];
#pragma unroll
    for (int n = 0; n < kSTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[half] = fmaxf(largest[half], fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) largest[half] = common::quad_max(largest[half]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float growth = kFirst ? 0.0f : (row_max[half] - largest[half]) * scale_log2;
      const float alpha = ptx::ex2(growth);
      row_max[half] = largest[half];
      const float largest_scaled = largest[half] * scale_log2;
      float sum[2];
#pragma unroll
      for (int n = 0; n < kSTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[n][i] = ptx::ex2(ptx::fma_rn(s[n][i], scale_log2, -largest_scaled));
        }
        const float pair = s[n][2 * half] + s[n][2 * half + 1];
        sum[n % 2] = n < 2 ? pair : sum[n % 2] + pair;
      }
      const float both = sum[0] + sum[1];
      row_sum[half] = kFirst ? both : ptx::mul_rn(row_sum[half], alpha) + both;
      if constexpr (!kFirst) {
#pragma unroll
        for (int n = 0; n < kOTiles; ++n) {
          o[n][2 * half] *= alpha;
          o[n][2 * half + 1] *= alpha;
        }
      }
    }
  }
};

// Normalises and writes the warp's rows through its own part of Q's shared memory.
template <FlashForwardKernelConfig kConfig>
FLASH_DEVICE void finish(const common::Problem<kConfig>& problem, const Softmax<kConfig>& softmax,
                         const typename Step<kConfig>::Output& o, uint32_t warp_q, int warp_row) {
  using Tile = typename Step<kConfig>::Tile;
  const int lane = threadIdx.x % common::kWarp;
  float log_sum_exp[2];
  // Rows are whole swizzle spans and start on one, so an XOR of the address is one of the chunk.
  const uint32_t staged = warp_q + Tile::offset(lane / 4, 0) + lane % 4 * 4;
  static_for<0, 2>([&](auto half) {
    constexpr int kRows = half * 8 * Tile::kRowBytes;
    const float sum = common::quad_sum(softmax.row_sum[half]);
    const float inverse = ptx::rcp(sum);
    log_sum_exp[half] =
        ptx::fma_rn(ptx::lg2(sum), common::kLn2, softmax.row_max[half] * softmax.scale);
    static_for<0, 2 * Step<kConfig>::kDTiles>([&](auto n) {
      constexpr int kXor = n % Tile::kSwizzleRows * Tile::kChunkBytes;
      constexpr int kAdd = kRows + n * Tile::kChunkBytes - kXor;
      const uint32_t packed =
          ptx::pack<kConfig.dtype>(o[n][2 * half] * inverse, o[n][2 * half + 1] * inverse);
      ptx::st_shared_4<kAdd>(staged ^ kXor, packed);
    });
  });
  __syncwarp();  // the warp's rows are staged before other lanes read them
  common::store_rows<Tile, 16>(warp_q, problem.o + warp_row * problem.o_row_bytes,
                               problem.o_row_bytes, lane);
  if (problem.lse != nullptr) common::store_lse(log_sum_exp, problem.lse + warp_row, lane);
}

template <FlashForwardKernelConfig kConfig>
FLASH_DEVICE void forward(const ForwardArgs& args) {
  using Mm = Step<kConfig>;
  static_assert(kConfig.async_copy && kConfig.eager_load_blocks && kConfig.optimized_softmax &&
                    kConfig.Q_mma_load_K_tiles == 0 && kConfig.rows_per_warp() == 16,
                "the choices of step 7 are settled");
  static_assert(kConfig.swizzled, "the encoding of the output's addresses is the swizzle's");

  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int lane = threadIdx.x % common::kWarp;
  const int warp_row = threadIdx.x / common::kWarp * 16;
  const uint32_t warp_q = smem + warp_row * Mm::Tile::kRowBytes;
  const common::Problem<kConfig> problem(args);
  const int last_row = args.seqlen_k - kConfig.B_c;
  Stream<kConfig> q_rows(problem.q, problem.q_row_bytes, 0, smem);
  Stream<kConfig> k_rows(problem.k, problem.k_row_bytes, last_row, smem + Mm::kKOffset);
  Stream<kConfig> v_rows(problem.v, problem.v_row_bytes, last_row, smem + Mm::kVOffset);

  q_rows.template load<kConfig.B_r>();  // in the group of the first K block
  k_rows.template issue<kConfig.B_c>();
  v_rows.template issue<kConfig.B_c>();
  ptx::cp_async_wait_group<1>();
  __syncthreads();  // Q and the first K block are visible to every warp

  const typename Mm::Lane q_lane(warp_q, lane, MatrixOrder::kRowsFirst);
  const typename Mm::Lane k_lane(smem, lane, MatrixOrder::kColumnsFirst);
  const typename Mm::Lane v_lane(smem, lane, MatrixOrder::kRowsFirst);
  typename Mm::Q q;
  q.prologue(q_lane);
  Softmax<kConfig> softmax{.scale = args.softmax_scale};
  typename Mm::Output o;

  const auto kv_block = [&](auto first, bool has_next) {
    typename Mm::Scores s;
    Mm::multiply_scores(s, q, k_lane);
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // V is visible; every warp has read K, so its buffer is free
    if (has_next) k_rows.template issue<kConfig.B_c>();
    softmax.template update<first>(s, o);
    if constexpr (first) common::clear(o);
    Mm::accumulate(o, s, v_lane);
    if (!has_next) return;
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the next K is visible; every warp has read V, so its buffer is free
    v_rows.template issue<kConfig.B_c>();
  };
  kv_block(Int<1>{}, problem.n_kv_blocks > 1);
  for (int block = problem.n_kv_blocks - 1; block > 0; --block) kv_block(Int<0>{}, block > 1);
  finish<kConfig>(problem, softmax, o, warp_q, warp_row);
}

}  // namespace flash::previous::step14
