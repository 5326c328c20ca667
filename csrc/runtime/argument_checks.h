// Checks of single arguments, for the records of every kind of launch. Each throws
// std::invalid_argument that names the kernel, the argument, its value and what is accepted.
#pragma once

#include <cstdint>
#include <string>

#include "flash/core/args.h"
#include "flash/core/registry.h"
#include "forward_checks.h"

namespace flash {

// Global memory is read and written in 16-byte pieces.
inline constexpr std::uintptr_t kAlignmentBytes = 16;

inline void check_pointer(const KernelEntry& entry, const char* name, const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address != 0 && address % kAlignmentBytes == 0) return;
  refuse(entry, std::string(name) + (address == 0 ? " is null" : " is not aligned to 16 bytes"));
}

inline void check_stride(const KernelEntry& entry, const char* name, int64_t stride) {
  const int element_bytes = bytes_of(entry.dtype);
  if (static_cast<std::uint64_t>(stride) * element_bytes % kAlignmentBytes == 0) return;
  refuse(entry, std::string(name) + " = " + std::to_string(stride) +
                    " elements: expected a multiple of " +
                    std::to_string(kAlignmentBytes / element_bytes));
}

inline void check_positive(const KernelEntry& entry, const char* name, int value) {
  if (value > 0) return;
  refuse(entry, std::string(name) + " = " + std::to_string(value) + ": expected at least 1");
}

inline void check_multiple(const KernelEntry& entry, const char* name, int value, int of,
                           const char* of_name) {
  if (value % of == 0) return;
  refuse(entry, std::string(name) + " = " + std::to_string(value) + ": expected a multiple of " +
                    of_name + " = " + std::to_string(of));
}

inline void check_length(const KernelEntry& entry, const char* name, int value) {
  if (value >= 0 && value <= kMaxSeqlen) return;
  refuse(entry, std::string(name) + " = " + std::to_string(value) + ": expected 0 to " +
                    std::to_string(kMaxSeqlen));
}

// Of any record with these fields.
template <typename Args>
void check_sizes(const KernelEntry& entry, const Args& args) {
  check_positive(entry, "batch", args.batch);
  check_positive(entry, "seqlen_q", args.seqlen_q);
  check_positive(entry, "n_heads_q", args.n_heads_q);
  check_positive(entry, "n_heads_kv", args.n_heads_kv);
  check_length(entry, "seqlen_q", args.seqlen_q);
  check_length(entry, "seqlen_k", args.seqlen_k);
  check_multiple(entry, "n_heads_q", args.n_heads_q, args.n_heads_kv, "n_heads_kv");
}

}  // namespace flash
