#include "sm90_serve/launch.h"

#include "sm90/launch.h"
#include "sm90/tensor_map.h"

namespace flash::sm90_serve {
namespace {

// Rows of a copy by TMA: one group's queries, a block of keys, one warp's output.
constexpr int kQRows = sm90::HopperForwardKernelConfig::kGroupRows;
constexpr int kORows = kQRows / sm90::HopperForwardKernelConfig::kGroupWarps;

// By the average sequence: the lengths are on the device.
int32_t heads_per_section(const HopperServeKernelConfig& config, const ServeArgs& args) {
  const int64_t keys = args.cu_seqlens_k == nullptr ? args.seqlen_k : args.seqlen_k / args.batch;
  return sm90::heads_per_section(2 * keys * config.forward().row_bytes(),
                                 args.n_heads_q / args.n_heads_kv, args.n_heads_q);
}

}  // namespace

int64_t tiles_per_head(const HopperServeKernelConfig& config, const ServeArgs& args) {
  const int rows = config.block_m();
  if (args.cu_seqlens_q != nullptr) return int64_t{args.n_rows} / rows + args.batch;
  return (int64_t{args.seqlen_q} + rows - 1) / rows * args.batch;
}

ServeKernelArgs kernel_args(const HopperServeKernelConfig& config, const ServeArgs& args,
                            std::int32_t* tile_counter) {
  const auto map = [&](const void* address, int64_t batch_stride, int64_t seq, int64_t head,
                       int32_t rows, int32_t n_heads, int32_t batch,
                       int32_t box_rows) -> const sm90::TensorMap& {
    // Without keys nothing is loaded, but a map must have an address.
    return sm90::tensor_map({.address = rows > 0 ? address : args.q,
                             .stride_batch = batch_stride,
                             .stride_seq = seq,
                             .stride_head = head,
                             .batch = batch,
                             .seqlen = rows,
                             .n_heads = n_heads,
                             .d_head = config.d_head,
                             .box_rows = box_rows,
                             .swizzle_bytes = config.forward().swizzle_bytes(),
                             .dtype = config.dtype});
  };
  // Packed rows are one batch.
  const bool packed_q = args.cu_seqlens_q != nullptr;
  const int32_t q_rows = packed_q ? args.n_rows : args.seqlen_q;
  const int32_t q_batch = packed_q ? 1 : args.batch;
  const int32_t k_batch = args.cu_seqlens_k != nullptr ? 1 : args.batch;
  return {
      .q = map(args.q, args.q_stride_batch, args.q_stride_seq, args.q_stride_head, q_rows,
               args.n_heads_q, q_batch, kQRows),
      .k = map(args.k, args.k_stride_page, args.k_stride_seq, args.k_stride_head, args.seqlen_k,
               args.n_heads_kv, k_batch, config.block_n),
      .v = map(args.v, args.v_stride_page, args.v_stride_seq, args.v_stride_head, args.seqlen_k,
               args.n_heads_kv, k_batch, config.block_n),
      .o = map(args.o, args.o_stride_batch, args.o_stride_seq, args.o_stride_head, q_rows,
               args.n_heads_q, q_batch, kORows),
      .call = args,
      .tile_counter = tile_counter,
      .tiles_per_head = static_cast<int32_t>(tiles_per_head(config, args)),
      .heads_per_section = heads_per_section(config, args),
  };
}

}  // namespace flash::sm90_serve
