// The two matmuls of a block of keys, whose first columns are the values: the scores of a tile, by
// one warpgroup, and half of the output's columns, by each.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/wgmma.cuh"
#include "flash/sm90_serve_mla/place.cuh"
#include "flash/tile/matrix_descriptor.h"

namespace flash::sm90_serve_mla {

template <HopperMlaKernelConfig kConfig>
struct Matmuls {
  using Descriptor = MatrixDescriptor<HopperMlaKernelConfig::kSwizzleBytes>;
  static constexpr int kChunk = kConfig.chunk_bytes(kConfig.B_c);
  static constexpr int kChunkSteps = kConfig.chunk_columns() / 16;
  static constexpr int kKeySteps = kConfig.B_c / 16;
  static_assert(kConfig.B_r == kConfig.B_c, "Q and K have chunks of one size");

  // A thread's share; element order as in ptx/wgmma.cuh.
  using Scores = float[kConfig.B_c / 2];
  using Output = float[kConfig.group_columns() / 2];
  // As the A operand of the output: accumulators of 16 keys are one k-step.
  using Weights = uint32_t[kKeySteps][4];

  // s (+)= Q K^T, over the columns of one half of a stage. Asynchronous.
  template <Half kHalf>
  FLASH_DEVICE static void issue_scores(const Place<kConfig>& at, int stage, Scores& s) {
    constexpr int kFirst = kHalf == kLeft ? 0 : kConfig.group_chunks() * kChunkSteps;
    constexpr int kEnd =
        (kHalf == kLeft ? kConfig.group_chunks() : kConfig.n_chunks()) * kChunkSteps;
    const auto q = Descriptor::k_major(at.queries());
    const auto k = Descriptor::k_major(at.stage(stage));
    ptx::wgmma_touch(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = kFirst; step < kEnd; ++step) {
      ptx::Wgmma<kConfig.B_c>::template ss<kConfig.dtype>(s, q.k_step(step, kChunk),
                                                          k.k_step(step, kChunk), step != 0);
    }
    ptx::wgmma_commit_group();
  }

  // o += weights * values, of this group's columns. Asynchronous.
  FLASH_DEVICE static void issue_output(const Place<kConfig>& at, int stage, const Weights& weights,
                                        Output& o) {
    const auto v =
        Descriptor::mn_major(at.chunk(stage, at.group() * kConfig.group_chunks()), kChunk);
    ptx::wgmma_touch(o);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      ptx::Wgmma<kConfig.group_columns()>::template rs<kConfig.dtype>(o, weights[step],
                                                                      v.mn_step(step), 1);
    }
    ptx::wgmma_commit_group();
  }

  // Until all are done; `d` is what they wrote.
  template <int kCount>
  FLASH_DEVICE static void wait(float (&d)[kCount]) {
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_touch(d);
  }

  FLASH_DEVICE static void pack(const Scores& s, Weights& weights) {
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[step][i] = ptx::pack<kConfig.dtype>(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
      }
    }
  }

  // From a thread of one group to the thread of the other that has the same rows.
  FLASH_DEVICE static void tell(const Place<kConfig>& at, const Weights& weights) {
    static_for<0, kKeySteps>([&](auto step) {
      ptx::st_shared_16<kBetween * step>(
          at.weights(), {weights[step][0], weights[step][1], weights[step][2], weights[step][3]});
    });
  }
  FLASH_DEVICE static void read(const Place<kConfig>& at, Weights& weights) {
    static_for<0, kKeySteps>([&](auto step) {
      const ptx::Vector16 told = ptx::ld_shared_16<kBetween * step>(at.weights());
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[step][i] = told.word[i];
    });
  }

 private:
  static constexpr int kBetween = 128 * 16;  // a group's threads
};

}  // namespace flash::sm90_serve_mla
