// By which thread blocks of the large kernel tell those of other sections how far they are
// (sections.h).
#pragma once

#include "flash/ptx/atomic.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90_bwd_cluster/args.h"

namespace flash::sm90_bwd_cluster {

// Two of each section, behind the sums of dQ: of warps that have prepared it, and of those that
// have added all they have to its sums.
template <ClusterBackwardKernelConfig kConfig>
struct SectionCounters {
  static constexpr bool kExist = kConfig.wave_pairs > 0;
  static constexpr unsigned kBlocks = ClusterBackwardKernelConfig::kBlocks;
  static constexpr unsigned kSpareWarps = 3;
  static constexpr unsigned kSumsWarps = sm90_bwd::HopperBackwardKernelConfig::kGroupWarps;
  static constexpr unsigned kWords = 2;

  const BackwardKernelArgs& args;
  const unsigned pair = 0;  // in the grid's order

  FLASH_DEVICE uint32_t* prepared(unsigned section) const { return words() + section * kWords; }
  FLASH_DEVICE uint32_t* added(unsigned section) const { return prepared(section) + 1; }

  // Warps that count, of a whole section.
  FLASH_DEVICE uint32_t all_prepared() const {
    return args.sections.workers * kBlocks * kSpareWarps;
  }
  FLASH_DEVICE uint32_t all_added() const { return args.sections.pairs * kBlocks * kSumsWarps; }

  FLASH_DEVICE static void await(const uint32_t* counter, uint32_t all) {
    while (ptx::ld_acquire(counter) != all) {
    }
  }

  // By the kernel before, whose threads share them out.
  FLASH_DEVICE void clear() const {
    if constexpr (!kExist) return;
    const unsigned n = args.sections.count * kWords;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
      words()[i] = 0;
    }
  }

  // The pair's section, worked out again wherever it is asked for.
  FLASH_DEVICE unsigned own_section() const { return ptx::hidden(pair) / args.sections.pairs; }

  // One thread, or all lanes of a warp: until its section has RowStats and zeros, which the copy
  // engine will read and add to. `kByWarp`: in step, or the compiler would no longer know in what
  // follows what is the same in all lanes.
  template <bool kByWarp = false>
  FLASH_DEVICE void await_prepared() const {
    if constexpr (!kExist) return;
    const unsigned section = own_section();
    if (section < args.sections.lead) return;  // by the kernel before
    if constexpr (kByWarp) {
      while (!__all_sync(0xffffffffu, ptx::ld_acquire(prepared(section)) == all_prepared())) {
      }
    } else {
      await(prepared(section), all_prepared());
    }
    ptx::fence_proxy_async_global();
  }

  // One of a warp's threads, which has waited for the copy engine's last writes.
  FLASH_DEVICE void count_added() const {
    if constexpr (!kExist) return;
    const unsigned section = own_section();
    if (!args.sections.rounds(section + args.sections.lead)) return;  // for the kernel behind
    ptx::red_add_release(added(section), 1);
  }

 private:
  FLASH_DEVICE uint32_t* words() const {
    const int64_t rows = int64_t{args.sections.n_heads} * args.sections.rows_of_head;
    return reinterpret_cast<uint32_t*>(args.call.d_q_sums + rows * kConfig.d_head);
  }
};

}  // namespace flash::sm90_bwd_cluster
