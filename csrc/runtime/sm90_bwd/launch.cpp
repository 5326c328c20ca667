#include "sm90_bwd/launch.h"

#include <cstdint>
#include <string>

#include "forward_checks.h"
#include "sm90/tensor_map.h"

namespace flash::sm90_bwd {
namespace {

// Rows of a copy by TMA: one group's that stay, one warp's of a gradient.
constexpr int kOwnRows = HopperBackwardKernelConfig::kGroupRows;
constexpr int kGradientRows = kOwnRows / HopperBackwardKernelConfig::kGroupWarps;

class Maps {
 public:
  Maps(const HopperBackwardKernelConfig& config, const BackwardArgs& args)
      : config_(config), args_(args), packed_(args.cu_seqlens_q != nullptr) {}

#define FLASH_MAP(tensor, seqlen, n_heads)                                           \
  TensorMap tensor(int rows) const {                                                 \
    return map(args_.tensor, args_.tensor##_stride_batch, args_.tensor##_stride_seq, \
               args_.tensor##_stride_head, args_.seqlen, args_.n_heads, rows);       \
  }
  FLASH_MAP(q, seqlen_q, n_heads_q)
  FLASH_MAP(d_o, seqlen_q, n_heads_q)
  FLASH_MAP(d_q, seqlen_q, n_heads_q)
  FLASH_MAP(k, seqlen_k, n_heads_kv)
  FLASH_MAP(v, seqlen_k, n_heads_kv)
  FLASH_MAP(d_k, seqlen_k, n_heads_kv)
  FLASH_MAP(d_v, seqlen_k, n_heads_kv)
#undef FLASH_MAP

  TensorMap narrow(Narrow wanted) const {
    if (wanted.of == Narrow::kKeyChunks) {
      return map(args_.k, args_.k_stride_batch, args_.k_stride_seq, args_.k_stride_head,
                 args_.seqlen_k, args_.n_heads_kv, wanted.rows, config_.swizzle_bytes());
    }
    return map(args_.d_q, args_.d_q_stride_batch, args_.d_q_stride_seq, args_.d_q_stride_head,
               args_.seqlen_q, args_.n_heads_q, wanted.rows, kNarrowRowBytes);
  }

  // RowStats as rows of 16-bit elements; a box: those of `queries`.
  TensorMap stats(int queries) const {
    constexpr int kElement = 2;
    const int row_bytes = stats_row_bytes(queries);
    const int row = row_bytes / kElement;
    const int64_t n_rows = packed_ ? packed_stats_rows(args_.seqlen_q, args_.batch)
                                   : row_stats_rows(args_.seqlen_q, row_stats_block(queries));
    const int64_t head_bytes = n_rows * int64_t{sizeof(RowStats)};
    return sm90::tensor_map({.address = args_.row_stats,
                             .stride_batch = head_bytes / kElement * args_.n_heads_q,
                             .stride_seq = row,
                             .stride_head = head_bytes / kElement,
                             .batch = packed_ ? 1 : args_.batch,
                             .seqlen = static_cast<int32_t>(head_bytes / row_bytes),
                             .n_heads = args_.n_heads_q,
                             .d_head = row,
                             .box_rows = queries * int{sizeof(RowStats)} / row_bytes,
                             .swizzle_bytes = row_bytes,
                             .dtype = config_.dtype});
  }

 private:
  // Where there is no memory (no keys, or a gradient that is not wanted) nothing is copied, but a
  // map must have an address: that of Q, and strides like those of memory without gaps.
  TensorMap map(const void* address, int64_t batch, int64_t seq, int64_t head, int32_t seqlen,
                int32_t n_heads, int rows, int narrow_bytes = 0) const {
    const bool exists = address != nullptr && seqlen > 0;
    if (exists && packed_) return packed_map(address, seq, n_heads, rows);
    const int64_t none = config_.d_head;
    return sm90::tensor_map(
        {.address = exists ? address : args_.q,
         .stride_batch = exists ? batch : none,
         .stride_seq = exists ? seq : none,
         .stride_head = exists ? head : none,
         .batch = args_.batch,
         .seqlen = seqlen,
         .n_heads = n_heads,
         .d_head = config_.d_head,
         .box_rows = rows,
         .swizzle_bytes = narrow_bytes != 0 ? narrow_bytes : config_.swizzle_bytes(),
         .dtype = config_.dtype,
         .box_chunks = narrow_bytes != 0 ? 1 : 0});
  }

  // Of packed rows, so that a copy ends with its sequence wherever that is, although the device
  // alone knows where: of kRaggedRows rows, of which a copy begins as many before the last as it
  // shall have. Another dimension has the step of a row as well, and goes to the row behind the
  // copy's last. A third takes the kRaggedRows rows away: so many of its steps are 2^64 bytes less
  // as many rows, and addresses are numbers of 64 bits. (Triton's create_ragged_descriptor does
  // so.) The heads of a row are chunks behind each other, as that leaves no dimension for them.
  //
  // The map must not begin before the tensor instead: where part of a box lies outside, an H200
  // accesses the map's first address, and faults where there is no memory.
  TensorMap packed_map(const void* address, int64_t seq, int32_t n_heads, int rows) const {
    constexpr int32_t kAnyNumber = 0x7fff0000;
    constexpr int64_t kStepBytes = (int64_t{1} << 62) / kRaggedRows * 4;
    return sm90::tensor_map({.address = address,
                             .stride_batch = kStepBytes / bytes_of(config_.dtype) - seq,
                             .stride_seq = seq,
                             .stride_head = seq,
                             .batch = kAnyNumber,
                             .seqlen = kRaggedRows,
                             .n_heads = kAnyNumber,
                             .d_head = config_.d_head * n_heads,
                             .box_rows = rows,
                             .swizzle_bytes = config_.swizzle_bytes(),
                             .dtype = config_.dtype,
                             .box_chunks = config_.row_bytes() / config_.swizzle_bytes()});
  }

  const HopperBackwardKernelConfig& config_;
  const BackwardArgs& args_;
  const bool packed_;  // of families that serve
};

}  // namespace

void check_copied(const KernelEntry& entry, const BackwardArgs& args) {
  const auto check_strides = [&](const char* tensor, int64_t batch, int64_t seq, int64_t head) {
    for (const int64_t stride : {batch, seq, head}) {
      if (sm90::can_be_copied(stride, entry.dtype)) continue;
      refuse(entry, std::string("a stride of ") + tensor + " is " + std::to_string(stride) +
                        " elements: the copy engine takes 0 to 2^40 bytes, exclusive");
    }
  };
#define FLASH_CHECK_COPIED(tensor)                                             \
  check_strides(#tensor, args.tensor##_stride_batch, args.tensor##_stride_seq, \
                args.tensor##_stride_head)
  FLASH_CHECK_COPIED(q);
  FLASH_CHECK_COPIED(k);
  FLASH_CHECK_COPIED(v);
  FLASH_CHECK_COPIED(d_o);
  FLASH_CHECK_COPIED(d_q);
  FLASH_CHECK_COPIED(d_k);
  FLASH_CHECK_COPIED(d_v);
#undef FLASH_CHECK_COPIED
}

void check_copied_and_summed(const KernelEntry& entry, const BackwardArgs& args) {
  check_copied(entry, args);
  if (args.d_q_sums == nullptr) refuse(entry, "d_q_sums is null");
}

BackwardKernelArgs kernel_args(const HopperBackwardKernelConfig& config, Variant variant,
                               const BackwardArgs& args, Narrow narrow) {
  BackwardKernelArgs made{};
  made.call = args;
  const Maps maps(config, args);
  const int columns = config.shape(variant).columns;
  if (variant == Variant::kKeys) {
    made.own1 = maps.k(kOwnRows);
    made.own2 = maps.v(kOwnRows);
    made.other1 = maps.q(columns);
    made.other2 = maps.d_o(columns);
    made.d_own1 = maps.d_k(kGradientRows);
    made.d_own2 = maps.d_v(kGradientRows);
    made.stats = maps.stats(columns);
    if (narrow.of != Narrow::kNothing) made.narrow = maps.narrow(narrow);
  } else if (variant == Variant::kQueries) {
    made.own1 = maps.q(kOwnRows);
    made.own2 = maps.d_o(kOwnRows);
    made.other1 = maps.k(columns);
    made.other2 = maps.v(columns);
    made.d_own1 = maps.d_q(kGradientRows);
  }
  return made;
}

}  // namespace flash::sm90_bwd
