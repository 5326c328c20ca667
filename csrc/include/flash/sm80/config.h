// The configuration of one Ampere-family forward kernel: every choice that is fixed at compile
// time.
//
// Plain C++20 (no CUDA), so host code, device code and tests share it. The fields, their order and
// their meaning are those of `FlashForwardKernelConfig` in
// py/flash_helpers/kernels/sm80_fwd/config.py; tests/config/test_cpp_contracts.py compares the two.
// It is a structural type: kernels take it as a non-type template argument.
#pragma once

#include "flash/core/dtype.h"

namespace flash::sm80 {

struct FlashForwardKernelConfig {
  DType dtype;
  int d_head;  // elements of one head: 64 or 128
  int B_r;     // query rows of one thread block
  int B_c;     // key/value rows of one block of the inner loop
  int n_warps;

  bool async_copy;         // global -> shared by cp.async, else through registers
  bool eager_load_blocks;  // issue the next K and V loads as soon as their shared memory is free
  bool swizzled;           // XOR-swizzled shared memory

  // 0: load the operand's whole block into registers before the matmul.
  // n: hold n k-tiles (of 16) and load them inside the matmul's loop.
  int Q_mma_load_K_tiles;
  int K_mma_load_K_tiles;
  int V_mma_load_K_tiles;

  bool mma_double_buffer_loads;  // issue ldmatrix for the next k-tile before the mma of this one
  bool optimized_softmax;        // first KV block peeled, scale folded into one FFMA before exp2

  constexpr bool operator==(const FlashForwardKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kWarpSize = 32;

  constexpr int element_bytes() const { return bytes_of(dtype); }
  constexpr int n_threads() const { return n_warps * kWarpSize; }
  constexpr int rows_per_warp() const { return B_r / n_warps; }
  constexpr int q_bytes() const { return B_r * d_head * element_bytes(); }
  constexpr int kv_bytes() const { return B_c * d_head * element_bytes(); }
  // One Q block, one K block, one V block; the output block reuses Q's memory.
  constexpr int smem_bytes() const { return q_bytes() + 2 * kv_bytes(); }
  // Thread blocks per multiprocessor that the register budget is planned for (65,536 registers,
  // at most 255 a thread): two blocks of four warps, one of eight.
  constexpr int min_blocks_per_sm() const { return n_warps <= 4 ? 2 : 1; }
};

}  // namespace flash::sm80
