// The configuration of one Hopper-family forward kernel: every choice that is fixed at compile
// time.
//
// Plain C++20 (no CUDA). The fields, their order and their meaning are those of
// `HopperForwardKernelConfig` in py/flash_helpers/kernels/sm90_fwd/config.py;
// tests/config/test_cpp_contracts.py compares the two. A structural type: kernels take it as a
// non-type template argument.
#pragma once

#include "flash/core/dtype.h"

namespace flash::sm90 {

// How the softmax's reference m follows the running maximum of a row. The softmax is the same for
// every m, as long as exponentials stay in the range of the 16-bit types.
enum class MaxPolicy : int {
  kExact = 0,       // m is the maximum; the output is rescaled in every block
  kLazy = 1,        // m rises, and the output is rescaled, when the maximum has grown by 2^8
  kOptimistic = 2,  // the maximum is not even computed unless an exponential has exceeded 2^15
};

struct HopperForwardKernelConfig {
  DType dtype;
  int d_head;        // elements of one head: 64, 96, 128, 192 or 256
  int block_n;       // key/value rows of one block of the inner loop
  int n_mma_groups;  // consumer warpgroups; each owns 64 query rows
  int n_buffers;     // K blocks, and V blocks, in shared memory
  int n_q_buffers;   // Q tiles in shared memory: 1 or 2

  MaxPolicy max_policy;
  bool overlap;    // Q K^T of the next block is in flight during this block's softmax and P V
  bool ping_pong;  // the groups take turns at issuing their matmuls
  bool o_in_q;     // the output is staged in Q's shared memory instead of its own
  int d_v;         // elements of a value, and of an output; 0: of a head

  constexpr bool operator==(const HopperForwardKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kGroupThreads = 128;
  static constexpr int kGroupRows = 64;  // rows of one wgmma
  static constexpr int kGroupWarps = 4;

  constexpr int element_bytes() const { return bytes_of(dtype); }
  constexpr int block_m() const { return n_mma_groups * kGroupRows; }
  constexpr int n_threads() const { return (n_mma_groups + 1) * kGroupThreads; }
  constexpr int row_bytes() const { return d_head * element_bytes(); }
  constexpr int value_columns() const { return d_v == 0 ? d_head : d_v; }
  constexpr int value_bytes() const { return value_columns() * element_bytes(); }
  constexpr int q_bytes() const { return block_m() * row_bytes(); }
  constexpr int o_bytes() const { return block_m() * value_bytes(); }
  constexpr int k_bytes() const { return block_n * row_bytes(); }
  constexpr int v_bytes() const { return block_n * value_bytes(); }
  constexpr int smem_data_bytes() const {
    return n_q_buffers * q_bytes() + (o_in_q ? 0 : o_bytes()) + n_buffers * (k_bytes() + v_bytes());
  }
  // Full and empty: of each group's part of each Q buffer, of each K and each V buffer.
  constexpr int n_barriers() const { return 2 * n_q_buffers * n_mma_groups + 4 * n_buffers; }
  // Behind the tiles: barriers, and the number of the tile that each Q buffer holds.
  constexpr int smem_bytes() const {
    return smem_data_bytes() + 8 * n_barriers() + 4 * n_q_buffers;
  }

  // The shared-memory row of a tile: 128 bytes with the 128-byte swizzle where the head dimension
  // is whole multiples of it, else 64 bytes with the 64-byte swizzle. Values have the same.
  constexpr int swizzle_bytes() const { return row_bytes() % 128 == 0 ? 128 : 64; }
  constexpr int chunk_columns() const { return swizzle_bytes() / element_bytes(); }
  constexpr int n_chunks() const { return row_bytes() / swizzle_bytes(); }
  constexpr int n_value_chunks() const { return value_bytes() / swizzle_bytes(); }

  // A block has a multiprocessor to itself.
  constexpr int min_blocks_per_sm() const { return 1; }

  // Registers per thread after setmaxnreg. All warpgroups together get what the launch allotted:
  // 168 for each of 384 threads, 128 for each of 512.
  // A producer that fills one Q buffer makes do with 24.
  constexpr int consumer_registers() const {
    return n_mma_groups == 3 ? 160 : n_q_buffers == 1 ? 240 : 232;
  }
  constexpr int producer_registers() const {
    return n_mma_groups == 3 ? 32 : n_q_buffers == 1 ? 24 : 40;
  }
};

}  // namespace flash::sm90
