// The two matmuls of a warpgroup on tiles in shared memory: S = Q K^T and O += P V.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/ptx/wgmma.cuh"
#include "flash/sm90/storage.cuh"
#include "flash/tile/matrix_descriptor.h"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct Matmuls {
  static constexpr int kBlockN = kConfig.block_n;
  static constexpr int kSteps = kBlockN / 16;  // k-steps of P V
  using Storage = SharedStorage<kConfig>;
  using Descriptor = MatrixDescriptor<kConfig.swizzle_bytes()>;

  // A thread's share; element order as in ptx/wgmma.cuh.
  using Scores = float[kBlockN / 2];
  using Probabilities = uint32_t[kSteps][4];
  using Output = float[kConfig.value_columns() / 2];

  // Descriptors of S = Q K^T.
  struct ScoreOperands {
    Descriptor q;
    Descriptor k;

    // Makes the compiler compute them before the next barrier instead of behind it, where other
    // groups wait for this one.
    FLASH_DEVICE void compute_now() const {
      ptx::needed_here(q.lower_word);
      ptx::needed_here(k.lower_word);
    }
    // The same ones, computed again where they are used instead of kept in registers until there.
    FLASH_DEVICE ScoreOperands hidden() const {
      ScoreOperands copy = *this;
      ptx::forget(copy.q.lower_word);
      ptx::forget(copy.k.lower_word);
      return copy;
    }
  };

  FLASH_DEVICE static ScoreOperands operands(const Storage& smem, int q_buffer, int group,
                                             int k_buffer) {
    return {Descriptor::k_major(smem.q(q_buffer, group)), Descriptor::k_major(smem.k(k_buffer))};
  }

  // Asynchronous, as one group: `s` may be touched after wait().
  FLASH_DEVICE static void issue_scores(const ScoreOperands& operands, Scores& s) {
    constexpr int kQChunk = HopperForwardKernelConfig::kGroupRows * kConfig.swizzle_bytes();
    constexpr int kKChunk = kBlockN * kConfig.swizzle_bytes();
    ptx::wgmma_touch(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kConfig.d_head / 16; ++step) {
      ptx::Wgmma<kBlockN>::template ss<kConfig.dtype>(s, operands.q.k_step(step, kQChunk),
                                                      operands.k.k_step(step, kKChunk), step != 0);
    }
    ptx::wgmma_commit_group();
  }

  // `before_end` runs when so little is left to be issued that another group may begin: it takes
  // about that long to wake up.
  template <typename Action>
  FLASH_DEVICE static void issue_output(const Storage& smem, int v_buffer, const Probabilities& p,
                                        Output& o, Action before_end) {
    constexpr int kVChunk = kBlockN * kConfig.swizzle_bytes();
    constexpr int kEnd = kSteps - 2;
    const auto v = Descriptor::mn_major(smem.v(v_buffer), kVChunk);
    ptx::wgmma_touch(o);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kEnd) before_end();
      ptx::Wgmma<kConfig.value_columns()>::template rs<kConfig.dtype>(o, p[step], v.mn_step(step),
                                                                      1);
    }
    ptx::wgmma_commit_group();
  }

  // Until at most kPending groups are in flight; `d` is what the waited-for group wrote.
  template <int kPending, int kCount>
  FLASH_DEVICE static void wait(float (&d)[kCount]) {
    ptx::wgmma_wait_group<kPending>();
    ptx::wgmma_touch(d);
  }

  // Exponentials as the A operand of P V: the accumulators of 16 columns are one k-step.
  FLASH_DEVICE static void pack(const Scores& s, Probabilities& p) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[step][i] = ptx::pack<kConfig.dtype>(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
      }
    }
  }

  FLASH_DEVICE static void clear(Output& o) {
#pragma unroll
    for (float& x : o) x = 0.0f;
  }

  // In front of several loops, each of which would write a zero that the compiler knows again.
  FLASH_DEVICE static void clear_once(Output& o) {
    clear(o);
    ptx::wgmma_touch(o);
  }
};

}  // namespace flash::sm90
