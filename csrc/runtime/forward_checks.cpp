#include "forward_checks.h"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <variant>

namespace flash {
namespace {

// Global memory is read and written in 16-byte pieces.
constexpr std::uintptr_t kAlignmentBytes = 16;
constexpr int64_t kElementBytes = bytes_of(DType::kFP16);  // every DType has as many
constexpr int64_t kAlignmentElements = kAlignmentBytes / kElementBytes;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxTensorMapStride = (int64_t{1} << 40) - 1;  // in bytes

[[noreturn]] void refuse(const KernelEntry& entry, const std::string& problem) {
  throw std::invalid_argument(std::string(entry.name) + ": " + problem);
}

void check_pointer(const KernelEntry& entry, const char* name, const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address != 0 && address % kAlignmentBytes == 0) return;
  refuse(entry, std::string(name) + (address == 0 ? " is null" : " is not aligned to 16 bytes"));
}

void check_stride(const KernelEntry& entry, const char* name, int64_t stride) {
  if (stride % kAlignmentElements == 0) return;
  refuse(entry, std::string(name) + " = " + std::to_string(stride) +
                    " elements: expected a multiple of " + std::to_string(kAlignmentElements));
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

void check_for_hopper(const KernelEntry& entry, const ForwardArgs& args) {
  if (!(args.softmax_scale > 0)) {
    refuse(entry, "softmax_scale = " + std::to_string(args.softmax_scale) +
                      ": this family takes positive scales");
  }
  if (args.causal != 0 && int64_t{args.seqlen_q} + args.seqlen_k > kMaxSeqlen) {
    refuse(entry, "causal: seqlen_q + seqlen_k = " +
                      std::to_string(int64_t{args.seqlen_q} + args.seqlen_k) +
                      ": expected at most " + std::to_string(kMaxSeqlen));
  }
  for (const int64_t stride :
       {args.q_stride_batch, args.q_stride_seq, args.q_stride_head, args.k_stride_batch,
        args.k_stride_seq, args.k_stride_head, args.v_stride_batch, args.v_stride_seq,
        args.v_stride_head, args.o_stride_batch, args.o_stride_seq, args.o_stride_head}) {
    if (stride >= 0 && stride <= kMaxTensorMapStride / kElementBytes) {
      continue;
    }
    refuse(entry, "a stride is " + std::to_string(stride) +
                      " elements: the copy engine takes 0 to 2^40 bytes, exclusive");
  }
}

int query_rows(const FlashForwardKernelConfig& config) { return config.B_r; }
int query_rows(const HopperForwardKernelConfig& config) { return config.block_m(); }

bool is_more_than_whole_blocks(const FlashForwardKernelConfig& config, const ForwardArgs& args) {
  return args.causal != 0 || args.seqlen_k == 0 || args.seqlen_q % config.B_r != 0 ||
         args.seqlen_k % config.B_c != 0;
}
bool is_more_than_whole_blocks(const HopperForwardKernelConfig&, const ForwardArgs&) {
  return false;  // the family's one kernel takes everything
}

}  // namespace

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
  if (std::holds_alternative<HopperForwardKernelConfig>(entry.config)) {
    check_for_hopper(entry, args);
  }
}

bool needs_general(const KernelEntry& entry, const ForwardArgs& args) {
  return std::visit([&](const auto& config) { return is_more_than_whole_blocks(config, args); },
                    entry.config);
}

unsigned forward_tiles(const KernelEntry& entry, const ForwardArgs& args) {
  const int64_t rows =
      std::visit([](const auto& config) -> int64_t { return query_rows(config); }, entry.config);
  const int64_t query_blocks = (args.seqlen_q + rows - 1) / rows;
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
