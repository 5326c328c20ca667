#include "sm90_serve/launch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sm90/launch.h"
#include "sm90/tensor_map.h"

namespace flash::sm90_serve {
namespace {

// Rows of a copy by TMA: one group's, one warp's output.
constexpr int kQRows = sm90::HopperForwardKernelConfig::kGroupRows;
constexpr int kORows = kQRows / sm90::HopperForwardKernelConfig::kGroupWarps;

// Maps have a size in every dimension, and calls do not say how many pages there are: any number.
// The driver takes this one: the ragged descriptors of Triton 3.9's tools have it.
constexpr int32_t kAnyNumber = 0x7fff0000;

// Where a paged kernel finds keys, and in which parts it copies a block of them.
struct Pages {
  const int32_t* pages = nullptr;
  int64_t stride = 0;
  int32_t keys = 0;
  int32_t part_rows = 0;

  // With which kernels divide: as Divisor in tile/divisor.cuh.
  uint32_t inverse() const {
    return keys == 0 ? 0 : std::numeric_limits<uint32_t>::max() / static_cast<uint32_t>(keys);
  }
};

Pages pages_of(const HopperServeKernelConfig& config, const ServeArgs& args) {
  if (!config.paged) return {};
  if (args.block_table != nullptr) {
    return {args.block_table, args.table_stride, args.page_size,
            std::gcd(args.page_size, config.block_n)};
  }
  // One page has all keys of a sequence; behind its end there are zeros.
  return {args.cache_batch_idx, 1, std::numeric_limits<int32_t>::max(), config.block_n};
}

// KV heads of a section, of `all` of which `n` fit L2: as many in each, rather up to a quarter more
// than fit than one section more. A small last section has long tiles that begin late: 16 heads in
// sections of 15 took 526 us, of 16 486 (4 x 4096, 192/128).
int32_t even_section(int32_t n, int32_t all) {
  if (all % n == 0) return n;
  const int32_t most = (5 * n + 3) / 4;
  const int32_t sections = (all + most - 1) / most;
  return (all + sections - 1) / sections;
}

// By the average sequence: the lengths are on the device.
int32_t heads_per_section(const HopperServeKernelConfig& config, const ServeArgs& args) {
  const int64_t keys = args.cu_seqlens_k == nullptr ? args.seqlen_k : args.seqlen_k / args.batch;
  const int32_t of_kv_head = args.n_heads_q / args.n_heads_kv / packed_heads(config, args);
  // Tiles of a sequence that all take as long need no order: one KV head after the other, so that
  // thread blocks at work read few keys.
  if (args.window_left == kNoWindow && args.window_right == kNoWindow) return of_kv_head;
  const sm90::HopperForwardKernelConfig forward = config.forward();
  const int32_t heads = heads_of_tiles(config, args);
  const int32_t fitting = sm90::heads_per_section(
      keys * (forward.row_bytes() + forward.value_bytes()), of_kv_head, heads);
  if (fitting < of_kv_head) return fitting;
  return even_section(fitting / of_kv_head, heads / of_kv_head) * of_kv_head;
}

// tanh(x) / x for y = x^2 <= 1, to 6e-7: of its degree, the polynomial whose largest relative error
// is the least. What belongs to the cap and to the softmax is multiplied into it.
SoftCap soft_cap(const ServeArgs& args) {
  constexpr double kRatio[SoftCap::kFactors] = {0x1.ffffecp-1,  -0x1.554a16p-2, 0x1.1000f8p-3,
                                                -0x1.a6c0f6p-5, 0x1.1251bcp-6,  -0x1.92018p-9};
  // Of y: up to these a coefficient changes nothing in fp32, nor do those behind it.
  constexpr double kNegligible[SoftCap::kFactors] = {0, 0x1p-23, 0x1p-11, 0x1p-7, 0x1p-5, 0x1p-4};
  constexpr double kLog2e = 1.4426950408889634;
  if (args.softcap == 0.0f) return {};
  const double unit = double{args.softmax_scale} / double{args.softcap};
  const double square = unit * unit;
  SoftCap cap = {};
  double power = double{args.softmax_scale} * kLog2e;
  double limit = 1.0;
  for (int i = 0; i < SoftCap::kFactors; ++i, power *= square) {
    const double factor = kRatio[i] * power;
    // Tiny caps: all scores are beyond them.
    if (std::abs(factor) > std::numeric_limits<float>::max()) {
      return {.limit = -1.0f, .factors = {}};
    }
    if (std::abs(factor) < std::numeric_limits<float>::min()) {
      limit = kNegligible[i];
      break;
    }
    cap.factors[i] = static_cast<float>(factor);
  }
  cap.limit =
      static_cast<float>(std::min(limit / square, double{std::numeric_limits<float>::max()}));
  return cap;
}

}  // namespace

int32_t packed_heads(const HopperServeKernelConfig& config, const ServeArgs& args) {
  return config.pack_gqa ? args.n_heads_q / args.n_heads_kv : 1;
}

int32_t heads_of_tiles(const HopperServeKernelConfig& config, const ServeArgs& args) {
  return args.n_heads_q / packed_heads(config, args);
}

int64_t tiles_per_head(const HopperServeKernelConfig& config, const ServeArgs& args) {
  const int rows = config.n_mma_groups * (kQRows / packed_heads(config, args));
  if (args.cu_seqlens_q != nullptr) return int64_t{args.n_rows} / rows + args.batch;
  return (int64_t{args.seqlen_q} + rows - 1) / rows * args.batch;
}

ServeKernelArgs kernel_args(const HopperServeKernelConfig& config, const ServeArgs& args,
                            std::int32_t* tile_counter) {
  const int32_t all_chunks = config.forward().n_chunks();
  const int32_t value_chunks = config.forward().n_value_chunks();
  const int32_t d_v = config.forward().value_columns();
  const auto map = [&](const void* address, int32_t d, int64_t batch_stride, int64_t seq,
                       int64_t head, int32_t rows, int32_t n_heads, int32_t batch, int32_t box_rows,
                       int32_t box_chunks, int32_t group_heads = 0) -> const sm90::TensorMap& {
    const int32_t box_heads = std::min(group_heads, box_rows);
    // Without keys nothing is loaded, but a map must have an address.
    return sm90::tensor_map({.address = rows > 0 ? address : args.q,
                             .stride_batch = batch_stride,
                             .stride_seq = seq,
                             .stride_head = head,
                             .batch = batch,
                             .seqlen = rows,
                             .n_heads = n_heads,
                             .d_head = d,
                             .box_rows = box_rows / std::max(box_heads, 1),
                             .swizzle_bytes = config.forward().swizzle_bytes(),
                             .dtype = config.dtype,
                             .box_chunks = box_chunks,
                             .group_heads = group_heads,
                             .box_heads = box_heads});
  };
  // Packed rows are one batch.
  const bool packed_q = args.cu_seqlens_q != nullptr;
  const int32_t q_rows = packed_q ? args.n_rows : args.seqlen_q;
  const int32_t q_batch = packed_q ? 1 : args.batch;
  const Pages pages = pages_of(config, args);
  const int32_t k_batch = config.paged ? kAnyNumber : args.cu_seqlens_k != nullptr ? 1 : args.batch;
  const int32_t k_rows = config.paged && args.block_table != nullptr && args.seqlen_k > 0
                             ? args.page_size
                             : args.seqlen_k;
  const int32_t box_rows = config.paged ? pages.part_rows : config.block_n;
  const int32_t heads = packed_heads(config, args);
  const int32_t group_heads = config.pack_gqa ? heads : 0;
  return {
      .q = map(args.q, config.d_head, args.q_stride_batch, args.q_stride_seq, args.q_stride_head,
               q_rows, args.n_heads_q, q_batch, kQRows, all_chunks, group_heads),
      .k = map(args.k, config.d_head, args.k_stride_page, args.k_stride_seq, args.k_stride_head,
               k_rows, args.n_heads_kv, k_batch, box_rows, config.paged ? 1 : all_chunks),
      .v = map(args.v, d_v, args.v_stride_page, args.v_stride_seq, args.v_stride_head, k_rows,
               args.n_heads_kv, k_batch, box_rows, config.paged ? 1 : value_chunks),
      .o = map(args.o, d_v, args.o_stride_batch, args.o_stride_seq, args.o_stride_head, q_rows,
               args.n_heads_q, q_batch, kORows, value_chunks, group_heads),
      .call = args,
      .tile_counter = tile_counter,
      .tiles_per_head = static_cast<int32_t>(tiles_per_head(config, args)),
      .heads_per_section = heads_per_section(config, args),
      .pages = pages.pages,
      .pages_stride = pages.stride,
      .page_keys = pages.keys,
      .part_rows = pages.part_rows,
      .group_heads = heads,
      .group_queries = kQRows / heads,
      .group_inverse = (1 << 16) / heads + 1,
      .cap = soft_cap(args),
      .page_inverse = pages.inverse(),
      .block_parts = config.paged ? config.block_n / pages.part_rows : 0,
  };
}

}  // namespace flash::sm90_serve
