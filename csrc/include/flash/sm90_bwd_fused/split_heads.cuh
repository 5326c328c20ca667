// Thread blocks that share the query heads of a block of keys (head_splits.h), where sums of dQ are
// added as they come.
//
// Each has sums of dK and dV of its own heads. It leaves them in scratch memory, in fp32, and
// counts itself; who is counted last adds them all up, in the order of the heads. So dK and dV are
// bitwise the same whoever that is.
#pragma once

#include "flash/ptx/atomic.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm90_bwd/layout.cuh"
#include "flash/sm90_bwd_fused/head_splits.h"
#include "flash/sm90_bwd_fused/named_barriers.h"
#include "flash/sm90_bwd_fused/sums_order.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd_fused {

// As Work, of a thread block's share of the heads: `head` is that of keys if there were as many as
// thread blocks share them.
template <typename L>
struct SplitWork : Work<L> {
  unsigned n_splits;

  FLASH_DEVICE SplitWork(const BackwardArgs& args, unsigned block)
      : SplitWork(args, block, gridDim.x / static_cast<unsigned>(key_blocks(args, L::kRows))) {}

  FLASH_DEVICE int64_t own_head() const { return static_cast<unsigned>(this->head) / n_splits; }

 private:
  FLASH_DEVICE SplitWork(const BackwardArgs& args, unsigned block, unsigned splits)
      : Work<L>(args, block / splits), n_splits(splits) {
    this->head = static_cast<unsigned>(this->head) * splits + block % splits;
    this->n_heads /= static_cast<int>(splits);
  }
};

// What those kernels are compiled for.
struct SplitHeads : sm90_bwd::EqualLengths {
  static constexpr bool kSplitsHeads = true;
  template <typename L>
  using Work = SplitWork<L>;
};

// Behind the sums of dQ: counters of the blocks of keys, filled up to whole 16 bytes, then parts of
// dK and dV, one for each thread block, in the order of the accumulators.
template <FusedBackwardKernelConfig kConfig>
struct HeadParts {
  static constexpr int kThreads = FusedBackwardKernelConfig::kWarps * 32;
  static constexpr int kCount = kConfig.d_head / 2;  // sums of a thread
  static constexpr int kPieces = kCount / 4;         // of 16 bytes
  static constexpr int kGradients = 2;

  uint32_t* const counters;
  const unsigned n_counters;  // filled up

  FLASH_DEVICE explicit HeadParts(const BackwardArgs& call)
      : counters(counters_of<kConfig>(call)),
        n_counters(static_cast<unsigned>(key_blocks(call, kConfig.keys_rows) + 3) / 4 * 4) {}

  // By the kernel before.
  FLASH_DEVICE void clear_counters() const {
    for (unsigned i = threadIdx.x; i < n_counters; i += blockDim.x) counters[i] = 0;
  }

  // Of thread `thread` of the consumers, all of which come here: leaves sums of dK and dV. Whether
  // this thread block is the last of `n`; then they are those of all. `flag_place` (): where in
  // shared memory a word is free.
  template <typename Place>
  FLASH_DEVICE bool gather(unsigned n, const Place& flag_place, int thread, float (&d_k)[kCount],
                           float (&d_v)[kCount]) const {
    const unsigned tile = blockIdx.x / n;
    leave(blockIdx.x, 0, thread, d_k);
    leave(blockIdx.x, 1, thread, d_v);
    ptx::bar_sync(kParts, kThreads);  // all threads have left theirs
    const uint32_t flag = flag_place();
    if (thread == 0) ptx::st_shared_4<0>(flag, ptx::atomic_inc_acq_rel(counters + tile, n - 1));
    ptx::bar_sync(kParts, kThreads);  // the count is there
    if (ptx::ld_shared_4(flag) != n - 1) return false;
    add_up(tile * n, n, 0, thread, d_k);
    add_up(tile * n, n, 1, thread, d_v);
    return true;
  }

 private:
  FLASH_DEVICE void leave(unsigned block, int gradient, int thread,
                          const float (&sums)[kCount]) const {
    char* const own = at(block, gradient, thread);
    static_for<0, kPieces>([&](auto piece) {
      constexpr int kFirst = piece * 4;
      ptx::st_global_16(own + piece * kThreads * 16,
                        {{__float_as_uint(sums[kFirst]), __float_as_uint(sums[kFirst + 1]),
                          __float_as_uint(sums[kFirst + 2]), __float_as_uint(sums[kFirst + 3])}});
    });
  }
  // Of `n` thread blocks, the first of them `first`.
  FLASH_DEVICE void add_up(unsigned first, unsigned n, int gradient, int thread,
                           float (&sums)[kCount]) const {
    static_for<0, kCount>([&](auto i) { sums[i] = 0.0f; });
#pragma unroll 1
    for (unsigned block = first; block < first + n; ++block) {
      const char* const part = at(block, gradient, thread);
      static_for<0, kPieces>([&](auto piece) {
        const ptx::Vector16 words = ptx::ld_global_16(part + piece * kThreads * 16);
        static_for<0, 4>(
            [&](auto i) { sums[piece * 4 + i] += __uint_as_float(words.word[int{i}]); });
      });
    }
  }
  FLASH_DEVICE char* at(unsigned block, int gradient, int thread) const {
    char* const parts = reinterpret_cast<char*>(counters + n_counters);
    const int64_t part = int64_t{block} * kGradients + gradient;
    return parts + (part * kPieces * kThreads + thread) * 16;
  }
};

}  // namespace flash::sm90_bwd_fused
