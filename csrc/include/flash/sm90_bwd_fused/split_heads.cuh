// The gradients of thread blocks that share the query heads of a block of keys (head_splits.h).
//
// Each has sums of dK and dV of its own heads. It leaves them in scratch memory, in fp32, and
// counts itself; who is counted last adds them all up, in the order of the heads. So dK and dV are
// bitwise the same whoever that is.
#pragma once

#include "flash/ptx/atomic.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm90_bwd_fused/head_splits.h"
#include "flash/sm90_bwd_fused/named_barriers.h"
#include "flash/sm90_bwd_fused/sums_order.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd_fused {

enum class HeadGradient : int { kDk, kDv };

// Behind the sums of dQ, and the counters of their order: counters of the blocks of keys, filled up
// to whole 16 bytes, then parts of dK and dV, one for each thread block, in the order of the
// accumulators.
template <FusedBackwardKernelConfig kConfig>
struct HeadParts {
  static constexpr int kThreads = FusedBackwardKernelConfig::kWarps * 32;
  static constexpr int kCount = kConfig.d_head / 2;  // sums of a thread
  static constexpr int kPieces = kCount / 4;         // of 16 bytes
  static constexpr int kGradients = 2;

  uint32_t* const counters;
  const unsigned n_counters;  // filled up

  FLASH_DEVICE explicit HeadParts(const BackwardArgs& call)
      : counters(counters_of<kConfig>(call) + sums_rows<kConfig>(call)),
        n_counters(static_cast<unsigned>(key_blocks(call, kConfig.keys_rows) + 3) / 4 * 4) {}

  // By the kernel before.
  FLASH_DEVICE void clear_counters() const {
    for (unsigned i = threadIdx.x; i < n_counters; i += blockDim.x) counters[i] = 0;
  }

  // Of one thread of the consumers.
  FLASH_DEVICE char* at(unsigned part, HeadGradient gradient, int thread) const {
    char* const parts = reinterpret_cast<char*>(counters + n_counters);
    const int64_t sums = int64_t{part} * kGradients + static_cast<int>(gradient);
    return parts + (sums * kPieces * kThreads + thread) * 16;
  }
};

// One of the consumers' threads, all of which take part.
template <FusedBackwardKernelConfig kConfig>
struct SharedGradients {
  using Parts = HeadParts<kConfig>;
  static constexpr int kProducers = kConfig.n_threads() - Parts::kThreads;  // before them

  const Parts parts;
  const unsigned own;  // the thread block's part
  const unsigned n;    // that follow each other
  const int thread;    // of theirs

  template <typename Work>
  FLASH_DEVICE SharedGradients(const BackwardArgs& call, const Work& work)
      : parts(call),
        own(work.part(call)),
        n(work.n_splits),
        thread(static_cast<int>(threadIdx.x) - kProducers) {}

  FLASH_DEVICE bool are_shared() const { return n > 1; }

  FLASH_DEVICE void leave(HeadGradient gradient, const float (&sums)[Parts::kCount]) const {
    char* const to = parts.at(own, gradient, thread);
    static_for<0, Parts::kPieces>([&](auto piece) {
      constexpr int kFirst = piece * 4;
      ptx::st_global_16(to + piece * Parts::kThreads * 16,
                        {{__float_as_uint(sums[kFirst]), __float_as_uint(sums[kFirst + 1]),
                          __float_as_uint(sums[kFirst + 2]), __float_as_uint(sums[kFirst + 3])}});
    });
  }

  // Behind all that is left. Whether all others have left theirs before. `flag`: a word of shared
  // memory that is free.
  FLASH_DEVICE bool is_last(uint32_t flag) const {
    ptx::bar_sync(kParts, Parts::kThreads);  // all threads have left theirs
    if (thread == 0) {
      ptx::st_shared_4<0>(flag, ptx::atomic_inc_acq_rel(parts.counters + own / n, n - 1));
    }
    ptx::bar_sync(kParts, Parts::kThreads);  // the count is there
    const bool last = ptx::ld_shared_4(flag) == n - 1;
    ptx::bar_sync(kParts, Parts::kThreads);  // all have read it
    return last;
  }

  // Those of all.
  FLASH_DEVICE void add_up(HeadGradient gradient, float (&sums)[Parts::kCount]) const {
    static_for<0, Parts::kCount>([&](auto i) { sums[i] = 0.0f; });
    const unsigned first = own / n * n;
#pragma unroll 1
    for (unsigned part = first; part < first + n; ++part) {
      const char* const from = parts.at(part, gradient, thread);
      static_for<0, Parts::kPieces>([&](auto piece) {
        const ptx::Vector16 words = ptx::ld_global_16(from + piece * Parts::kThreads * 16);
        static_for<0, 4>(
            [&](auto i) { sums[piece * 4 + i] += __uint_as_float(words.word[int{i}]); });
      });
    }
  }
};

// Of kernels whose thread blocks share no heads.
struct OwnGradients {
  template <typename Work>
  FLASH_DEVICE OwnGradients(const BackwardArgs&, const Work&) {}
  FLASH_DEVICE static constexpr bool are_shared() { return false; }
  template <typename Sums>
  FLASH_DEVICE void leave(HeadGradient, const Sums&) const {}
  FLASH_DEVICE static constexpr bool is_last(uint32_t) { return true; }
  template <typename Sums>
  FLASH_DEVICE void add_up(HeadGradient, Sums&) const {}
};

// Which of them (NVRTC has no <type_traits>).
template <FusedBackwardKernelConfig kConfig, bool kSplitsHeads>
struct GradientsOf {
  using Type = OwnGradients;
};
template <FusedBackwardKernelConfig kConfig>
struct GradientsOf<kConfig, true> {
  using Type = SharedGradients<kConfig>;
};

}  // namespace flash::sm90_bwd_fused
