// What a launch reports when the kernel breaks a rule, and the one way out of a fiber.
#pragma once

#include "lane.h"
#include "types.h"

namespace emulator {

// Python maps these to exception classes (py/flash_helpers/emulator/errors.py).
enum class ErrorKind : u32 {
  kNone,
  kOutOfBounds,
  kMisaligned,
  kReadOnly,
  kDivergentCollective,
  kDeadlock,
  kPendingAsyncCopy,
  kEndlessLoop,
  kTrap,
  kInvalidLaunch,
  kInvalidOperand,
  kMbarrier,
  kWgmma,
  kTensorMap,
  kEarlyAccess,
};

struct ErrorRecord {
  ErrorKind kind;
  u32 site;  // PTX line
  u32 ctaid[3];
  u32 tid[3];
  u64 block_index;
  // One sentence. "{site:12}" stands for PTX line 12, "{range:3}" for a registered range,
  // "{outside:4096}" for where the address lies beside the ranges; Python puts the words there.
  char message[2048];
};

const char* wait_name(Wait wait);

// Records the error of this lane as that of its thread block.
[[gnu::cold, gnu::format(printf, 4, 5)]] void record_error(const Lane* lane, ErrorKind kind,
                                                           u32 site, const char* format, ...);

// Records the error of this lane and abandons the thread block.
[[noreturn, gnu::cold, gnu::format(printf, 4, 5)]] void fail(Lane* lane, ErrorKind kind, u32 site,
                                                             const char* format, ...);

// Records that no thread can run: the error of the first that is left, with where all of them wait.
void report_deadlock(Block* block);

}  // namespace emulator
