#include "sm90/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "flash/core/error.h"
#include "sm90/tensor_map.h"

namespace flash::sm90 {
namespace {

// Rows of a copy by TMA: one group's queries, a block of keys, one warp's output.
constexpr int kQRows = HopperForwardKernelConfig::kGroupRows;
constexpr int kORows = kQRows / HopperForwardKernelConfig::kGroupWarps;

// K and V of this many bytes stay in L2 (50 MiB on an H100 and H200) while query tiles of other
// heads come and go. Fewer heads, and too few tiles are there to even out: d 256, 8192 keys,
// causal: 3 heads 747 TFLOP/s, 4 to 8 heads 759 to 762.
constexpr int64_t kSectionBytes = 40'000'000;
// More KV heads at once, and their first tiles wait for the memory together: at 512 keys 1.00
// instead of 1.07 x cuDNN (docs/kernels/02-sm90-forward.md).
constexpr int64_t kSectionKvHeads = 32;

int multiprocessors(int device) {
  static std::array<std::atomic<int>, 64> known{};
  const bool is_kept = device < static_cast<int>(known.size());
  int count = is_kept ? known[device].load(std::memory_order_relaxed) : 0;
  if (count > 0) return count;
  FLASH_CHECK_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  if (is_kept) known[device].store(count, std::memory_order_relaxed);
  return count;
}

}  // namespace

int32_t heads_per_section(int64_t kv_head_bytes, int64_t queries_per_kv, int64_t heads) {
  if (kv_head_bytes == 0) return 1;
  return static_cast<int32_t>(
      std::clamp(std::min(kSectionBytes / kv_head_bytes, kSectionKvHeads) * queries_per_kv,
                 int64_t{1}, heads));
}

ForwardKernelArgs kernel_args(const HopperForwardKernelConfig& config, const ForwardArgs& args,
                              std::int32_t* tile_counter) {
  const auto map = [&](const void* address, int64_t batch, int64_t seq, int64_t head,
                       int32_t seqlen, int32_t n_heads, int32_t box_rows) -> const TensorMap& {
    return tensor_map({.address = address,
                       .stride_batch = batch,
                       .stride_seq = seq,
                       .stride_head = head,
                       .batch = args.batch,
                       .seqlen = seqlen,
                       .n_heads = n_heads,
                       .d_head = config.d_head,
                       .box_rows = box_rows,
                       .swizzle_bytes = config.swizzle_bytes(),
                       .dtype = config.dtype});
  };
  // Without keys nothing is loaded, but a map must have an address.
  const void* const k = args.seqlen_k > 0 ? args.k : args.q;
  const void* const v = args.seqlen_k > 0 ? args.v : args.q;
  return {
      .q = map(args.q, args.q_stride_batch, args.q_stride_seq, args.q_stride_head, args.seqlen_q,
               args.n_heads_q, kQRows),
      .k = map(k, args.k_stride_batch, args.k_stride_seq, args.k_stride_head, args.seqlen_k,
               args.n_heads_kv, config.block_n),
      .v = map(v, args.v_stride_batch, args.v_stride_seq, args.v_stride_head, args.seqlen_k,
               args.n_heads_kv, config.block_n),
      .o = map(args.o, args.o_stride_batch, args.o_stride_seq, args.o_stride_head, args.seqlen_q,
               args.n_heads_q, kORows),
      .lse = args.lse,
      .tile_counter = tile_counter,
      .batch = args.batch,
      .seqlen_q = args.seqlen_q,
      .seqlen_k = args.seqlen_k,
      .n_heads_q = args.n_heads_q,
      .n_heads_kv = args.n_heads_kv,
      .causal = args.causal != 0,
      .softmax_scale = args.softmax_scale,
      .heads_per_section =
          heads_per_section(int64_t{2} * args.seqlen_k * config.row_bytes(),
                            args.n_heads_q / args.n_heads_kv, int64_t{args.n_heads_q} * args.batch),
  };
}

unsigned grid_size(unsigned n_tiles, int device) {
  return std::min(n_tiles, static_cast<unsigned>(multiprocessors(device)));
}

}  // namespace flash::sm90
