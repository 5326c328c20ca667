// Fused backward attention for sm_80 and later: cp.async, ldmatrix, mma.sync m16n8k16. Three
// kernels:
//
//   kDots   RowStats of every query (flash/tile/row_dots.cuh), and zeros for the sums of dQ.
//   kKeys   A thread block keeps rows of K and V while blocks of Q and dO pass by, of all query
//           heads that share them. It sums dV = P^T dO and dK = dS^T Q in registers, and adds its
//           keys' share of dQ = dS K to sums in global memory.
//   kRound  dQ from the sums.
//
// Five matmuls where two passes take seven (flash/sm80_bwd/backward.cuh). Thread blocks add as they
// come, so that dQ's last bits differ from run to run; dK and dV are bitwise repeatable.
//
// What a warp multiplies is read from shared memory. So each warp has 32 keys and half of the
// queries, and then half of the head's elements: P and dS are handed to the other warp of the pair,
// and dS to all, for dQ. Where warps need each other's work they wait for it late, so that they
// need not keep step: while one computes weights another multiplies.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm80_bwd/backward.cuh"
#include "flash/sm80_bwd_fused/config.h"
#include "flash/sm80_bwd_fused/matmuls.cuh"
#include "flash/sm80_bwd_fused/query_sums.cuh"
#include "flash/tile/clear_sums.cuh"

namespace flash::sm80_bwd_fused {

// Of a pair of warps, which hand each other P and dS; 0 is __syncthreads'.
inline constexpr int kPairBarrier = 1;

template <AmpereFusedBackwardKernelConfig kConfig>
struct Gradients {
  using L = Layout<kConfig>;
  using Mm = Matmuls<kConfig, L>;
  using Lane = typename L::Lane;
  using WeightsLane = typename L::WeightsLane;
  using Copy = sm80_bwd::RowCopy<typename L::Tile, L::kThreads>;
  using Config = AmpereFusedBackwardKernelConfig;

  const BackwardArgs& args;
  const typename L::Work& work;
  const uint32_t smem;
  int thread;
  typename L::Result d_k, d_v;

  FLASH_DEVICE Gradients(const BackwardArgs& launch_args, const typename L::Work& own,
                         uint32_t shared)
      : args(launch_args), work(own), smem(shared), thread(static_cast<int>(threadIdx.x)) {}

  FLASH_DEVICE void run() {
    const bool has_work = work.n_steps() > 0;
    if (has_work) load_first();  // else nothing is read, and the gradients are 0
    Mm::clear(d_k);
    Mm::clear(d_v);
    if (thread == 0) {
      handed_on().init(L::kThreads);
      done().init(L::kThreads);
    }
    ptx::cp_async_wait_group<1>();
    __syncthreads();  // what the first scores are made of, and the barriers, are visible

    Place place{work.begin, 0};
    int step = 0;
    for (; has_work && !place.is_behind(work); ++step) {
      if (step > 0) handed_on().wait(step - 1);
      forget();
      compute(place, step);
      if (step > 0) add_sums(before(place), step - 1);
      done().arrive();
      place.advance(work);
    }
    const sm80_bwd::OwnRows<L> own(args, work);
    write(d_k, args.softmax_scale, own.d_own1, args.d_k);
    write(d_v, 1.0f, own.d_own2, args.d_v);
    if (step > 0) {
      handed_on().wait(step - 1);
      add_sums(before(place), step - 1);
    }
  }

 private:
  FLASH_DEVICE Place before(const Place& place) const {
    if (place.block > work.begin) return {place.block - 1, place.head};
    return {work.end - 1, place.head - 1};
  }

  // Two groups of copies: what the first scores are made of, and what comes beside them.
  FLASH_DEVICE void load_first() const {
    const sm80_bwd::OwnRows<L> own(args, work);
    const Copy copy(thread);
    copy.template load<L::kRows>(smem + L::kOwn1, own.own1.first, own.own1.row_bytes, work.n_rows);
    sm80_bwd::PassingBlocks<L>(args, work, copy, smem).issue(0, [] {
      ptx::cp_async_commit_group();
    });
    copy.template load<L::kRows>(smem + L::kOwn2, own.own2.first, own.own2.row_bytes, work.n_rows);
    ptx::cp_async_commit_group();
  }

  // The block of queries of a step, to its stage.
  FLASH_DEVICE void load(const Place& place, int step) {
    forget();
    const Copy copy(thread);
    sm80_bwd::PassingBlocks<L> passing(args, work, copy, smem);
    passing.next = place;
    passing.issue(step % Config::kStages);
    forget();
  }

  // Else all addresses that are made of it are kept.
  FLASH_DEVICE void forget() {
    ptx::forget(thread);
    __builtin_assume(thread >= 0);  // was known, and divisions by shifts need it
  }

  // The thread's part of the next block of queries has come, and its dS is written. Who has waited
  // may read both, of all threads: the next step's scores and this one's dQ stand behind the wait.
  FLASH_DEVICE SplitBarrier handed_on() const { return {smem + L::kHandedOn}; }

  // The thread does not read the step's Q, dO and RowStats any more, nor the dS of the step before.
  // Who has waited may write over both.
  FLASH_DEVICE SplitBarrier done() const { return {smem + L::kDone}; }

  FLASH_DEVICE int lane() const { return thread % Config::kWarpSize; }
  FLASH_DEVICE int warp() const { return thread / Config::kWarpSize; }
  FLASH_DEVICE int pair() const { return warp() / L::kHalves; }
  FLASH_DEVICE int half() const { return warp() % L::kHalves; }
  FLASH_DEVICE int first_key() const { return pair() * L::kRowsPerWarp; }

  // The block of queries behind that of a step, to the other stage.
  FLASH_DEVICE void load_next(const Place& place, int step) {
    if (step > 0) done().wait(step - 1);
    Place next = place;  // made of it: there are registers for one
    next.advance(work);
    if (!next.is_behind(work)) load(next, step + 1);
    ptx::cp_async_commit_group();
  }

  // A block of queries, in its stage: dV and dK, and dS for dQ.
  FLASH_DEVICE void compute(const Place& place, int step) {
    const int first_column = place.block * L::kColumns;
    const int stage = step % Config::kStages * L::kStageBytes;
    const uint32_t q = smem + L::kOther1 + stage, d_o = smem + L::kOther2 + stage;
    const uint32_t keys = first_key() * L::Tile::kRowBytes;
    const uint32_t queries = half() * L::kHalfColumns * L::Tile::kRowBytes;
    const sm80_bwd::QueryStats<L> stats(
        nullptr, 0, smem + half() * L::kHalfColumns * int{sizeof(RowStats)}, lane());
    const typename L::Mask mask(args, work.first_row, first_column);
    const float scale_log2 = args.softmax_scale * kLog2e;

    typename L::Scores p, d_s;
    Mm::products(p, Lane(smem + L::kOwn1 + keys, lane(), MatrixOrder::kRowsFirst),
                 Lane(q + queries, lane(), MatrixOrder::kColumnsFirst));
    forget();
    stats.for_each(stage, [&](int m, int n, int i, const RowStats& row) {
      p[m][n][i] = ptx::ex2(ptx::fma_rn(p[m][n][i], scale_log2, -row.lse_log2));
    });
    if (mask.hides_something) {
      sm80_bwd::hide<L>(p, args, mask, first_key() + lane() / 4,
                        half() * L::kHalfColumns + lane() % 4 * 2);
    }
    typename L::Weights weights;
    Mm::round(weights, p);
    share(weights, smem + L::kP);
    if (step == 0) ptx::cp_async_wait_group<0>();
    if (step == 0) __syncthreads();  // the first dO, and V, are visible
    meet();
    accumulate(d_v, weights, smem + L::kP, d_o);
    forget();
    load_next(place, step);

    Mm::products(d_s, Lane(smem + L::kOwn2 + keys, lane(), MatrixOrder::kRowsFirst),
                 Lane(d_o + queries, lane(), MatrixOrder::kColumnsFirst));
    forget();
    stats.for_each(stage, [&](int m, int n, int i, const RowStats& row) {
      const float weight = p[m][n][i];
      const float d_score = weight * (d_s[m][n][i] - row.dot);
      // What belongs to a key that the query does not see may be infinite.
      d_s[m][n][i] = mask.hides_something && weight == 0.0f ? 0.0f : d_score;
    });
    Mm::round(weights, d_s);
    share(weights, ds(step));
    ptx::cp_async_wait_group<0>();
    handed_on().arrive();
    meet();
    accumulate(d_k, weights, ds(step), q);
  }

  // What both warps of the pair have shared is visible.
  FLASH_DEVICE void meet() const {
    ptx::bar_sync(kPairBarrier + pair(), L::kHalves * Config::kWarpSize);
  }

  FLASH_DEVICE uint32_t ds(int step) const {
    return smem + L::kDs + step % Config::kDsBlocks * kConfig.weights_bytes();
  }

  // Weights of the warp's half of the queries, where the other warp, or all, read them.
  FLASH_DEVICE void share(const typename L::Weights& weights, uint32_t block) const {
    using Tile = typename L::WeightsTile;
    const uint32_t rows = block + first_key() * Tile::kRowBytes + lane() % 4 * 4;
#pragma unroll
    for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < L::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = m * 16 + i % 2 * 8 + lane() / 4;
          const int chunk = half() * 2 * L::kColumnTiles + 2 * n + i / 2;
          ptx::st_shared_4<0>(rows + Tile::offset(row, chunk), weights[m][n][i]);
        }
      }
    }
  }

  // result += weights other, over all queries: `other` is Q or dO.
  FLASH_DEVICE void accumulate(typename L::Result& result, const typename L::Weights& weights,
                               uint32_t block, uint32_t other) const {
    constexpr int kHalfBytes = L::kHalfColumns * L::Tile::kRowBytes;
    Mm::accumulate(result, weights, columns(other + half() * kHalfBytes));
    const WeightsLane theirs(block + first_key() * L::WeightsTile::kRowBytes, lane(),
                             MatrixOrder::kRowsFirst, (1 - half()) * 2 * L::kColumnTiles);
    Mm::accumulate(result, theirs, columns(other + (1 - half()) * kHalfBytes));
  }

  // Rows from shared address `rows` on, in the warp's half of the head's elements.
  FLASH_DEVICE Lane columns(uint32_t rows) const {
    return Lane(rows, lane(), MatrixOrder::kRowsFirst, half() * 2 * L::kHalfTiles);
  }

  // The share of dQ of the block of queries of an earlier step.
  FLASH_DEVICE void add_sums(const Place& place, int step) const {
    // The warp's queries are columns there.
    const WeightsLane own(ds(step), lane(), MatrixOrder::kColumnsFirst,
                          warp() / L::kSumsParts * L::kSumsRows / 8);
    const Lane keys(smem + L::kOwn1, lane(), MatrixOrder::kRowsFirst,
                    warp() % L::kSumsParts * 2 * L::kSumsColumnTiles);
    typename L::Sums sums;
    Mm::query_sums(sums, own, keys);
    const int64_t head = work.head * work.n_heads + place.head;
    add_query_sums<L>(sums, sums_of_thread<kConfig>(args, work.batch * args.n_heads_q + head,
                                                    place.block * L::kColumns));
  }

  // A gradient's rows that exist, through those of V: since it last met, the pair reads them no
  // more.
  FLASH_DEVICE void write(const typename L::Result& result, float factor, sm80_bwd::Rows rows,
                          const void* wanted) const {
    if (wanted == nullptr) return;
    rows.first += first_key() * rows.row_bytes;
    sm80_bwd::write_rows<kConfig.dtype, L, 2 * L::kHalfTiles>(
        result, factor, smem + L::kOwn2 + first_key() * L::Tile::kRowBytes, rows,
        work.n_rows - first_key(), lane(), half() * 2 * L::kHalfTiles);
  }
};

template <AmpereFusedBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    constexpr int kThreads = AmpereFusedBackwardKernelConfig::kDotsThreads;
    clear_query_sums<kConfig.d_head, kThreads>(args);
    write_row_stats<kConfig.dtype, kConfig.d_head, kThreads>(args);
  } else if constexpr (kVariant == Variant::kKeys) {
    using L = Layout<kConfig>;
    extern __shared__ __align__(128) char shared_memory[];
    Gradients<kConfig>(args, typename L::Work(args, blockIdx.x), ptx::shared_address(shared_memory))
        .run();
  } else {
    round_query_sums<kConfig>(args);
  }
}

}  // namespace flash::sm80_bwd_fused
