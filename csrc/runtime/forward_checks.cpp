#include "forward_checks.h"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "argument_checks.h"

namespace flash {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

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
