// What thread blocks left of a tile's rows, copied to shared memory to be merged there.
//
// Copies need no registers, so that many are on their way at once: a thread that reads its parts
// itself waits for L2 with every row, which takes longer than all of the merging.
#pragma once

#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm80_serve/config.h"

namespace flash::sm80_serve {

// Shared memory that nobody else uses while parts are merged.
struct Room {
  char* memory;
  int bytes;
};

// Some of a tile's rows, cut into strips of consecutive columns, as `n_parts` parts have them.
template <AmpereServeKernelConfig kConfig>
class Gathered {
 public:
  static constexpr int kThreads = kConfig.n_threads();
  static constexpr int kColumns = kConfig.d_head < 128 ? kConfig.d_head : 128;  // of a strip
  static constexpr int kStrips = kConfig.d_head / kColumns;                     // of a row
  static constexpr int kCopies = kColumns / 4;  // of 16 bytes, for a strip of a part
  static_assert(kConfig.d_head % kColumns == 0 && kThreads % kCopies == 0);

  static constexpr int kPartBytes = kConfig.B_r * 4;  // its log-sum-exps
  static constexpr int kLeastPartBytes = kPartBytes + kColumns * 4;
  // With this room, two rounds merge what 1,024 thread blocks left of a tile.
  static constexpr int kLeastBytes = 32 * kLeastPartBytes;

  // Parts for which there is room: with a strip of each.
  FLASH_DEVICE static int most(const Room& room) { return room.bytes / kLeastPartBytes; }

  FLASH_DEVICE Gathered(const Room& room, int n_parts)
      : lses_(reinterpret_cast<float*>(room.memory)),
        n_parts_(n_parts),
        capacity_((room.bytes - n_parts * kPartBytes) / (n_parts * kColumns * 4)),
        thread_(threadIdx.x) {
    ptx::forget(thread_);  // what follows from it would be kept in registers beside the output
  }

  FLASH_DEVICE int thread() const { return static_cast<int>(thread_); }

  FLASH_DEVICE int capacity() const { return capacity_; }  // strips

  // Starts to copy `n` strips from `first` on, all threads together: each the columns that sum()
  // gives it. from(part, row, column): where four of them lie.
  template <typename From>
  FLASH_DEVICE void copy(int first, int n, const From& from) const {
    for (int part = 0; part < n_parts_; ++part) {
      const uint32_t to = ptx::shared_address(strip(part, 0));
      for (int i = thread(); i < n * kCopies; i += kThreads) {
        const int at = first + i / kCopies;
        ptx::cp_async_16<0>(to + i * 16,
                            from(part, at / kStrips, at % kStrips * kColumns + i % kCopies * 4));
      }
    }
    ptx::cp_async_commit_group();
  }
  FLASH_DEVICE float& lse(int part, int row) const { return lses_[part * kConfig.B_r + row]; }
  // Four columns of the strip of number `n`, which is one of this thread's: thread() / kCopies, and
  // those kThreads / kCopies apart.
  FLASH_DEVICE float4 sum(int part, int n) const {
    return reinterpret_cast<const float4*>(strip(part, n))[thread_ % kCopies];
  }

 private:
  FLASH_DEVICE float* strip(int part, int n) const {
    return lses_ + n_parts_ * kConfig.B_r + (part * capacity_ + n) * kColumns;
  }

  float* lses_;
  int n_parts_;
  int capacity_;
  uint32_t thread_;
};

}  // namespace flash::sm80_serve
