// The configuration of one of the Hopper family's serving kernels: every choice that is fixed at
// compile time.
//
// Plain C++20 (no CUDA). The fields, their order and their meaning are those of
// `HopperServeKernelConfig` in py/flash_helpers/kernels/sm90_serve/config.py;
// tests/config/test_cpp_contracts.py compares the two. A structural type: kernels take it as a
// non-type template argument.
#pragma once

#include "flash/core/dtype.h"
#include "flash/sm90/config.h"

namespace flash::sm90_serve {

struct HopperServeKernelConfig {
  DType dtype;
  int d_head;          // elements of one head
  int block_n;         // keys of a block
  int n_mma_groups;    // consumer warpgroups; each owns 64 query rows
  int n_buffers;       // K blocks, and V blocks, in shared memory
  int n_q_buffers;     // Q tiles in shared memory: 1 or 2
  bool paged;          // keys lie in pages that a table or an index names
  bool pack_gqa;       // a row of a tile is a query of one of the heads that share a KV head
  bool narrow_v;       // values have two thirds of a key's elements
  bool narrow_window;  // rows see few blocks: groups take no turns, nothing is optimistic

  constexpr bool operator==(const HopperServeKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  // What consumers are told of a tile. They look at it until its end, when the next Q's are there.
  static constexpr int kTileBytes = 48;
  static constexpr int kClearingBytes = 2 * 8 + 4 * 4;
  // A swizzle repeats itself after so many rows: parts of blocks are multiples of it.
  static constexpr int kLeastPartRows = 8;
  // Query heads of a KV head whose queries one group's rows can hold.
  static constexpr int kMostPackedHeads = sm90::HopperForwardKernelConfig::kGroupRows;
  constexpr int n_tiles() const { return n_q_buffers + 1; }

  // The forward pass whose tiles, matmuls and softmax these are.
  constexpr sm90::HopperForwardKernelConfig forward() const { return with_output(o_in_q()); }
  // Where there is no room beside a single Q.
  constexpr bool o_in_q() const {
    return n_q_buffers == 1 && smem_bytes(with_output(false)) > kMostSharedBytes;
  }

  constexpr int block_m() const { return forward().block_m(); }
  constexpr int n_threads() const { return forward().n_threads(); }
  constexpr int min_blocks_per_sm() const { return forward().min_blocks_per_sm(); }

  // Behind the forward pass' memory: two barriers and four words for each buffer of values that are
  // to be cleared, and tiles.
  constexpr int clearing_offset() const { return clearing_offset(forward()); }
  constexpr int tiles_offset() const { return clearing_offset() + n_buffers * kClearingBytes; }
  constexpr int smem_bytes() const { return smem_bytes(forward()); }

  // Whether consumers have no register for what is needed once.
  constexpr bool is_tight() const { return o_in_q() || n_mma_groups > 2; }

  // Registers per thread after setmaxnreg. The producers look sequences up, for which they would
  // rather have more than those of the forward pass.
  constexpr int consumer_registers() const {
    return n_mma_groups == 4 ? 112 : n_mma_groups == 3 ? 160 : 232;
  }
  constexpr int producer_registers() const { return n_mma_groups > 2 ? 32 : 40; }

 private:
  static constexpr int kMostSharedBytes = 227 * 1024;  // of a thread block

  constexpr sm90::HopperForwardKernelConfig with_output(bool o_in_q) const {
    return {.dtype = dtype,
            .d_head = d_head,
            .block_n = block_n,
            .n_mma_groups = n_mma_groups,
            .n_buffers = n_buffers,
            .n_q_buffers = n_q_buffers,
            .max_policy = narrow_window ? sm90::MaxPolicy::kExact : sm90::MaxPolicy::kOptimistic,
            .overlap = true,
            .ping_pong = !narrow_window,
            .o_in_q = o_in_q,
            .d_v = narrow_v ? d_head / 3 * 2 : 0};
  }
  static constexpr int clearing_offset(const sm90::HopperForwardKernelConfig& forward) {
    return (forward.smem_bytes() + 15) / 16 * 16;
  }
  constexpr int smem_bytes(const sm90::HopperForwardKernelConfig& forward) const {
    return clearing_offset(forward) + n_buffers * kClearingBytes + n_tiles() * kTileBytes;
  }
};

}  // namespace flash::sm90_serve
