#include "forward_checks.h"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace flash {
namespace {

// Global memory is read and written in 16-byte pieces.
constexpr std::uintptr_t kAlignmentBytes = 16;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

void check_pointer(const KernelEntry& entry, const char* name, const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address != 0 && address % kAlignmentBytes == 0) return;
  refuse(entry, std::string(name) + (address == 0 ? " is null" : " is not aligned to 16 bytes"));
}

void check_stride(const KernelEntry& entry, const char* name, int64_t stride) {
  const int element_bytes = bytes_of(entry.dtype);
  if (static_cast<std::uint64_t>(stride) * element_bytes % kAlignmentBytes == 0) return;
  refuse(entry, std::string(name) + " = " + std::to_string(stride) +
                    " elements: expected a multiple of " +
                    std::to_string(kAlignmentBytes / element_bytes));
}

void check_positive(const KernelEntry& entry, const char* name, int value) {
  if (value > 0) return;
  refuse(entry, std::string(name) + " = " + std::to_string(value) + ": expected at least 1");
}

void check_multiple(const KernelEntry& entry, const char* name, int value, int of,
                    const char* of_name) {
  if (value % of == 0) return;
  refuse(entry, std::string(name) + " = " + std::to_string(value) + ": expected a multiple of " +
                    of_name + " = " + std::to_string(of));
}

void check_length(const KernelEntry& entry, const char* name, int value) {
  if (value >= 0 && value <= kMaxSeqlen) return;
  refuse(entry, std::string(name) + " = " + std::to_string(value) + ": expected 0 to " +
                    std::to_string(kMaxSeqlen));
}

void check_sizes(const KernelEntry& entry, const ForwardArgs& args) {
  check_positive(entry, "batch", args.batch);
  check_positive(entry, "seqlen_q", args.seqlen_q);
  check_positive(entry, "n_heads_q", args.n_heads_q);
  check_positive(entry, "n_heads_kv", args.n_heads_kv);
  check_length(entry, "seqlen_q", args.seqlen_q);
  check_length(entry, "seqlen_k", args.seqlen_k);
  check_multiple(entry, "n_heads_q", args.n_heads_q, args.n_heads_kv, "n_heads_kv");
}

}  // namespace

void refuse(const KernelEntry& entry, const std::string& problem) {
  throw std::invalid_argument(std::string(entry.configuration) + ": " + problem);
}

void check_forward_args(const KernelEntry& entry, const ForwardArgs& args) {
  check_sizes(entry, args);
  check_pointer(entry, "q", args.q);
  if (args.seqlen_k > 0) {
    check_pointer(entry, "k", args.k);
    check_pointer(entry, "v", args.v);
  }
  check_pointer(entry, "o", args.o);
  check_stride(entry, "q_stride_batch", args.q_stride_batch);
  check_stride(entry, "q_stride_seq", args.q_stride_seq);
  check_stride(entry, "q_stride_head", args.q_stride_head);
  check_stride(entry, "k_stride_batch", args.k_stride_batch);
  check_stride(entry, "k_stride_seq", args.k_stride_seq);
  check_stride(entry, "k_stride_head", args.k_stride_head);
  check_stride(entry, "v_stride_batch", args.v_stride_batch);
  check_stride(entry, "v_stride_seq", args.v_stride_seq);
  check_stride(entry, "v_stride_head", args.v_stride_head);
  check_stride(entry, "o_stride_batch", args.o_stride_batch);
  check_stride(entry, "o_stride_seq", args.o_stride_seq);
  check_stride(entry, "o_stride_head", args.o_stride_head);
}

unsigned forward_tiles(const KernelEntry& entry, const ForwardArgs& args, int rows) {
  const int64_t query_blocks = (int64_t{args.seqlen_q} + rows - 1) / rows;
  // Three 31-bit factors: the product of two fits 64 bits, so it is compared before the third.
  const int64_t head_blocks = query_blocks * args.n_heads_q;
  // A persistent block counts its tiles in steps of the grid, which must not overflow.
  constexpr int64_t kMost = kMaxInt - 1024;
  if (head_blocks > kMost || head_blocks * args.batch > kMost) {
    refuse(entry, "query blocks (of " + std::to_string(rows) +
                      " rows) * n_heads_q * batch exceed " + std::to_string(kMost));
  }
  return static_cast<unsigned>(head_blocks * args.batch);
}

}  // namespace flash
