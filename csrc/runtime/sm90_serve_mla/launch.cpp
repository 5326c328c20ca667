#include "sm90_serve_mla/launch.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "sm90/tensor_map.h"

namespace flash::sm90_serve_mla {
namespace {

// Maps have a size in every dimension, and calls do not say how many pages there are: any number,
// as in sm90_serve/launch.cpp.
constexpr int32_t kAnyNumber = 0x7fff0000;

// Tiles of a sequence that thread blocks compute beside each other. One after the other, they would
// be as far apart as a thread block takes for a tile, and read the keys from memory each.
int32_t tiles_abreast(const HopperMlaKernelConfig& config, const ServeArgs& args) {
  constexpr int64_t kMost = 8;  // or too many thread blocks would be left over
  const bool differ = args.cu_seqlens_q != nullptr || args.seqused_q != nullptr;
  if (differ || args.arrivals == nullptr) return 1;  // or each thread block has a split of a tile
  const int64_t rows = int64_t{args.seqlen_q} * (args.n_heads_q / args.n_heads_kv);
  const int64_t tiles = (rows + config.B_r - 1) / config.B_r;
  const bool is_one_each = tiles * args.n_heads_kv * args.batch <= args.n_splits;
  return is_one_each || tiles > std::min<int64_t>(kMost, args.n_splits)
             ? 1
             : static_cast<int32_t>(tiles);
}

}  // namespace

ServeKernelArgs kernel_args(const HopperMlaKernelConfig& config, const ServeArgs& args) {
  const bool in_table = args.block_table != nullptr;
  const bool by_number = in_table || args.cache_batch_idx != nullptr;
  // Without keys nothing is loaded.
  const int32_t rows = in_table && args.seqlen_k > 0 ? args.page_size : args.seqlen_k;
  const int32_t part_rows = in_table ? std::gcd(args.page_size, config.B_c) : config.B_c;
  const auto map = [&](const void* address, int32_t d, int64_t page, int64_t seq, int64_t head,
                       int32_t box_chunks) -> const sm90::TensorMap& {
    return sm90::tensor_map({.address = rows > 0 ? address : args.q,
                             .stride_batch = page,
                             .stride_seq = seq,
                             .stride_head = head,
                             .batch = by_number                      ? kAnyNumber
                                      : args.cu_seqlens_k != nullptr ? 1
                                                                     : args.batch,
                             .seqlen = rows,
                             .n_heads = args.n_heads_kv,
                             .d_head = d,
                             .box_rows = part_rows,
                             .swizzle_bytes = HopperMlaKernelConfig::kSwizzleBytes,
                             .dtype = config.dtype,
                             .box_chunks = box_chunks});
  };
  const int32_t value_chunks = part_rows == config.B_c ? config.group_chunks() : 1;
  return {
      .k = map(args.k, args.d_head, args.k_stride_page, args.k_stride_seq, args.k_stride_head, 1),
      .v = map(args.v, args.d_v, args.v_stride_page, args.v_stride_seq, args.v_stride_head,
               value_chunks),
      .call = args,
      .page_keys = in_table ? args.page_size : std::numeric_limits<int32_t>::max(),
      .part_rows = part_rows,
      .abreast = tiles_abreast(config, args),
  };
}

}  // namespace flash::sm90_serve_mla
