// What a thread block copies before it knows where its share begins.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/device.cuh"
#include "flash/sm80_serve/abreast.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/shares.cuh"

namespace flash::sm80_serve {

// The first block of keys of a share, if all sequences have as many keys and shares end with
// sequences. It is copied while lengths come and the share is found, when memory has nothing else
// to do: a call of 16 x 1024 keys took 1.6 us less of 22.8, and where lengths differ a block that
// is copied in vain costs up to 0.4 %.
template <AmpereServeKernelConfig kConfig>
class FirstBlock {
 public:
  template <typename ItsAbreast>
  FLASH_DEVICE FirstBlock(const ServeArgs& args, const ItsAbreast& abreast) {
    if constexpr (!kIsTried) return;
    const unsigned n = args.batch;
    const unsigned shares = abreast.n_shares();
    if (!is_near(n, shares) || abreast.n_heads(args) != 1) return;
    const bool begins_with_page = args.cu_seqlens_k == nullptr && args.cache_batch_idx == nullptr &&
                                  args.leftpad_k == nullptr && args.window_left == kNoWindow;
    if (!begins_with_page || args.seqlen_k <= kConfig.B_c) return;
    const unsigned each = whole_quotient(n + shares - 1, shares);
    const unsigned first = abreast.share() * each;
    if (is_near(n, each * shares) && first < n) batch_ = static_cast<int>(first);
  }

  // To a stage of the ring, as a group of its own; or nothing.
  template <typename Stream>
  FLASH_DEVICE void copy(Stream& stream, unsigned head, int stage) {
    if (batch_ < 0) return;
    stream.look_up_first(batch_, static_cast<int>(head));
    check_lengths(stream.args, stream.lane);
    if (batch_ < 0) return;
    stream.find();
    stream.copy_to(stage);
    ptx::cp_async_commit_group();
  }

  // Whether it is the first of this piece, and another follows it.
  FLASH_DEVICE bool is_of(const Piece<kConfig>& first) const {
    return batch_ >= 0 && first.tile.batch == batch_ && first.keys.begin == 0 &&
           first.keys.end > kConfig.B_c;
  }

 private:
  // Not where wide heads have 32 rows and ptxas would spill: before sm_90.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr bool kIsTried = !kConfig.is_wide() || kConfig.B_r <= 16;
#else
  static constexpr bool kIsTried = true;
#endif

  // Whether shares of n sequences may be of so many: as Share lets them grow.
  FLASH_DEVICE static bool is_near(unsigned n, unsigned more) { return more * 32 <= n * 33; }

  // Entries of a table behind a sequence's end may be anything. So with pages lengths are waited
  // for, and if those of the first sequences differ, nothing is copied.
  FLASH_DEVICE void check_lengths(const ServeArgs& args, int lane) {
    if (args.block_table == nullptr) return;
    const int its = Sequence::used_of(args, batch_);
    const int some = Sequence::used_of(args, min(lane, args.batch - 1));
    if (__any_sync(0xffffffffu, its <= kConfig.B_c || some != its)) batch_ = -1;
  }

  int batch_ = -1;  // the sequence; -1: there is none
};

}  // namespace flash::sm80_serve
