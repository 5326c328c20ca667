#include "serve_checks.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "argument_checks.h"

namespace flash {
namespace {

void check_head_dimension(const KernelEntry& entry, const char* name, int value) {
  check_positive(entry, name, value);
  check_multiple(entry, name, value, 8, "a 16-byte chunk");
}

void check_partial(const KernelEntry& entry, const ServeArgs& args) {
  check_positive(entry, "n_splits", args.n_splits);
  if (args.n_splits == 1 && args.arrivals == nullptr) return;
  check_pointer(entry, "o_partial", args.o_partial);
  if (args.lse_partial == nullptr) refuse(entry, "lse_partial is null");
}

void check_number(const KernelEntry& entry, const char* name, float value, bool may_be_zero) {
  if (std::isfinite(value) && (value > 0.0f || (may_be_zero && value == 0.0f))) return;
  refuse(entry, std::string(name) + " = " + std::to_string(value) +
                    ": expected a finite, positive number");
}

void check_appended(const KernelEntry& entry, const ServeArgs& args) {
  if (args.n_new < 0) refuse(entry, "n_new is negative");
  if (args.rotary_dim != 0) {
    check_positive(entry, "rotary_dim", args.rotary_dim);
    check_multiple(entry, "rotary_dim", args.rotary_dim, 16, "two 16-byte chunks");
    if (args.rotary_dim > args.d_head) refuse(entry, "rotary_dim exceeds d_head");
    check_positive(entry, "rotary_rows", args.rotary_rows);
    check_pointer(entry, "rotary_cos", args.rotary_cos);
    check_pointer(entry, "rotary_sin", args.rotary_sin);
    check_pointer(entry, "q_new", args.q_new);
    if (args.rotary_seqlens == nullptr && args.seqused_k == nullptr) {
      refuse(entry, "rotary_seqlens and seqused_k are null");
    }
  }
  check_stride(entry, "q_new_stride_batch", args.q_new_stride_batch);
  check_stride(entry, "q_new_stride_seq", args.q_new_stride_seq);
  check_stride(entry, "q_new_stride_head", args.q_new_stride_head);
  if (args.n_new == 0) return;
  if (args.seqused_k == nullptr) refuse(entry, "seqused_k is null");
  if (args.cu_seqlens_new == nullptr) check_positive(entry, "seqlen_new", args.seqlen_new);
  check_pointer(entry, "k_new", args.k_new);
  check_pointer(entry, "v_new", args.v_new);
  check_stride(entry, "k_new_stride_batch", args.k_new_stride_batch);
  check_stride(entry, "k_new_stride_seq", args.k_new_stride_seq);
  check_stride(entry, "k_new_stride_head", args.k_new_stride_head);
  check_stride(entry, "v_new_stride_batch", args.v_new_stride_batch);
  check_stride(entry, "v_new_stride_seq", args.v_new_stride_seq);
  check_stride(entry, "v_new_stride_head", args.v_new_stride_head);
}

unsigned append_blocks(const KernelEntry& entry, const ServeArgs& args) {
  const int64_t rows = int64_t{args.n_new} + (args.rotary_dim == 0 ? 0 : args.n_rows);
  if (rows > std::numeric_limits<int32_t>::max()) refuse(entry, "too many new rows");
  return static_cast<unsigned>(rows);
}

}  // namespace

void check_serve_args(const KernelEntry& entry, const ServeArgs& args) {
  check_positive(entry, "batch", args.batch);
  check_positive(entry, "n_rows", args.n_rows);
  check_positive(entry, "n_heads_q", args.n_heads_q);
  check_positive(entry, "n_heads_kv", args.n_heads_kv);
  check_multiple(entry, "n_heads_q", args.n_heads_q, args.n_heads_kv, "n_heads_kv");
  check_head_dimension(entry, "d_head", args.d_head);
  check_head_dimension(entry, "d_v", args.d_v);
  check_length(entry, "seqlen_k", args.seqlen_k);
  if (args.cu_seqlens_q == nullptr) check_positive(entry, "seqlen_q", args.seqlen_q);
  if (args.block_table != nullptr) check_positive(entry, "page_size", args.page_size);
  if (args.window_left < 0 || args.window_right < 0) refuse(entry, "the window is negative");
  check_number(entry, "softmax_scale", args.softmax_scale, /*may_be_zero=*/false);
  check_number(entry, "softcap", args.softcap, /*may_be_zero=*/true);
  check_pointer(entry, "q", args.q);
  if (args.seqlen_k > 0) {
    check_pointer(entry, "k", args.k);
    check_pointer(entry, "v", args.v);
  }
  check_pointer(entry, "o", args.o);
  check_partial(entry, args);
  check_appended(entry, args);
  check_stride(entry, "q_stride_batch", args.q_stride_batch);
  check_stride(entry, "q_stride_seq", args.q_stride_seq);
  check_stride(entry, "q_stride_head", args.q_stride_head);
  check_stride(entry, "k_stride_page", args.k_stride_page);
  check_stride(entry, "k_stride_seq", args.k_stride_seq);
  check_stride(entry, "k_stride_head", args.k_stride_head);
  check_stride(entry, "v_stride_page", args.v_stride_page);
  check_stride(entry, "v_stride_seq", args.v_stride_seq);
  check_stride(entry, "v_stride_head", args.v_stride_head);
  check_stride(entry, "o_stride_batch", args.o_stride_batch);
  check_stride(entry, "o_stride_seq", args.o_stride_seq);
  check_stride(entry, "o_stride_head", args.o_stride_head);
}

unsigned serve_blocks(const KernelEntry& entry, const ServeArgs& args, int tile_rows,
                      int combining_blocks) {
  if (entry.variant == Variant::kAppend) return append_blocks(entry, args);
  if (args.arrivals != nullptr) return static_cast<unsigned>(args.n_splits);
  const bool merges = entry.variant == Variant::kCombine;
  if (merges && args.n_splits == 1) return 0;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t group = args.n_heads_q / args.n_heads_kv;
  const int64_t queries = args.cu_seqlens_q == nullptr ? args.seqlen_q : args.n_rows;
  // A tile's rows are counted by an int. Then every product of two factors fits 64 bits.
  if (queries * group > kMost - tile_rows) refuse(entry, "too many queries and heads of a group");
  const int64_t tiles = args.cu_seqlens_q == nullptr
                            ? (queries * group + tile_rows - 1) / tile_rows * args.batch
                            : queries * group / tile_rows + args.batch;
  const int64_t head_tiles = tiles * args.n_heads_kv;
  const int64_t each = merges ? combining_blocks : args.n_splits;
  if (tiles > kMost || head_tiles > kMost || head_tiles * each > kMost) {
    refuse(entry, "tiles (of " + std::to_string(tile_rows) + " rows) * n_heads_kv * " +
                      std::to_string(each) + " exceed " + std::to_string(kMost));
  }
  return static_cast<unsigned>(head_tiles * each);
}

}  // namespace flash
