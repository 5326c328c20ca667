#include "backward_checks.h"

#include <cstdint>
#include <limits>
#include <string>

#include "argument_checks.h"

namespace flash {
namespace {

void check_strides(const KernelEntry& entry, const std::string& tensor, int64_t batch, int64_t seq,
                   int64_t head) {
  check_stride(entry, (tensor + "_stride_batch").c_str(), batch);
  check_stride(entry, (tensor + "_stride_seq").c_str(), seq);
  check_stride(entry, (tensor + "_stride_head").c_str(), head);
}

// A gradient that nobody wants has no pointer.
void check_wanted(const KernelEntry& entry, const char* name, const void* pointer) {
  if (pointer != nullptr) check_pointer(entry, name, pointer);
}

void check_pointers(const KernelEntry& entry, const BackwardArgs& args) {
  check_pointer(entry, "q", args.q);
  if (args.seqlen_k > 0) {
    check_pointer(entry, "k", args.k);
    check_pointer(entry, "v", args.v);
  }
  check_pointer(entry, "o", args.o);
  check_pointer(entry, "d_o", args.d_o);
  check_pointer(entry, "row_stats", args.row_stats);
  if (args.d_q_sums != nullptr) check_pointer(entry, "d_q_sums", args.d_q_sums);
  if (args.lse == nullptr) refuse(entry, "lse is null");
  check_wanted(entry, "d_q", args.d_q);
  check_wanted(entry, "d_k", args.d_k);
  check_wanted(entry, "d_v", args.d_v);
}

bool is_wanted(Variant variant, const BackwardArgs& args) {
  const bool d_q = args.d_q != nullptr;
  // Which adds up the sums of dQ, too, where there are any.
  if (variant == Variant::kKeys) {
    return args.d_k != nullptr || args.d_v != nullptr || (d_q && args.d_q_sums != nullptr);
  }
  if (variant == Variant::kQueries || variant == Variant::kRound) return d_q;
  return true;
}

}  // namespace

void check_backward_args(const KernelEntry& entry, const BackwardArgs& args) {
  check_sizes(entry, args);
  check_pointers(entry, args);
#define FLASH_CHECK_STRIDES(tensor)                                                   \
  check_strides(entry, #tensor, args.tensor##_stride_batch, args.tensor##_stride_seq, \
                args.tensor##_stride_head)
  FLASH_CHECK_STRIDES(q);
  FLASH_CHECK_STRIDES(k);
  FLASH_CHECK_STRIDES(v);
  FLASH_CHECK_STRIDES(o);
  FLASH_CHECK_STRIDES(d_o);
  FLASH_CHECK_STRIDES(d_q);
  FLASH_CHECK_STRIDES(d_k);
  FLASH_CHECK_STRIDES(d_v);
#undef FLASH_CHECK_STRIDES
}

unsigned backward_blocks(const KernelEntry& entry, const BackwardArgs& args, int rows,
                         int stats_block) {
  if (!is_wanted(entry.variant, args)) return 0;
  const bool of_keys = entry.variant == Variant::kKeys;
  const int64_t n_rows = of_keys ? int64_t{args.seqlen_k}
                         : entry.variant == Variant::kDots
                             ? row_stats_rows(args.seqlen_q, stats_block)
                             : int64_t{args.seqlen_q};
  const int64_t row_blocks = (n_rows + rows - 1) / rows;
  // Three 31-bit factors: the product of two fits 64 bits, so it is compared before the third.
  const int64_t head_blocks = row_blocks * (of_keys ? args.n_heads_kv : args.n_heads_q);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (head_blocks > kMost || head_blocks * args.batch > kMost) {
    refuse(entry, std::string(of_keys ? "key" : "query") + " blocks (of " + std::to_string(rows) +
                      " rows) * heads * batch exceed " + std::to_string(kMost));
  }
  return static_cast<unsigned>(head_blocks * args.batch);
}

}  // namespace flash
