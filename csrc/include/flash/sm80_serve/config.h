// The configuration of the Ampere family's serving kernels: every choice that is fixed at compile
// time.
//
// Plain C++20 (no CUDA), so host code, device code and tests share it. The fields, their order and
// their meaning are those of `AmpereServeKernelConfig` in
// py/flash_helpers/kernels/sm80_serve/config.py; tests/config/test_cpp_contracts.py compares the
// two. It is a structural type: kernels take it as a non-type template argument.
#pragma once

#include "flash/core/dtype.h"
#include "flash/core/variant.h"
#include "flash/sm80/config.h"

namespace flash::sm80_serve {

struct AmpereServeKernelConfig {
  DType dtype;
  int d_head;    // elements of one head, at most: fewer are filled up with zeros
  int B_r;       // rows of a tile: a query of one head each
  int B_c;       // keys of a block
  int n_warps;   // 16 rows a warp; those that are left over share the keys of every block: 16 or 32
                 // keys of a block for each warp
  int n_stages;  // blocks of keys and values in shared memory

  constexpr bool operator==(const AmpereServeKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kWarpSize = 32;
  static constexpr int kWarpRows = 16;

  constexpr int n_threads(Variant = Variant::kServe) const { return n_warps * kWarpSize; }
  constexpr int row_warps() const { return B_r / kWarpRows; }
  constexpr int key_warps() const { return n_warps / row_warps(); }
  constexpr int slice_keys() const { return B_c / key_warps(); }  // of a block, for a warp

  // Thread blocks that merge the splits of a tile, a thread four columns of one row.
  constexpr int combining_blocks() const {
    const int blocks = B_r * d_head / 4 / n_threads();
    return blocks > 1 ? blocks : 1;
  }

  // Columns of a head that are multiplied at a time. The operands of wide heads do not fit the
  // registers beside their output; and with chunks, a kernel skips those that a head has not.
  static constexpr int kChunkColumns = 64;
  constexpr bool is_wide() const { return d_head > 128; }
  constexpr int columns_at_once() const { return is_wide() ? kChunkColumns : d_head; }

  // What the forward pass' matmuls take: a tile whose blocks are slices.
  constexpr sm80::FlashForwardKernelConfig matmuls() const {
    return {.dtype = dtype,
            .d_head = columns_at_once(),
            .B_r = B_r,
            .B_c = slice_keys(),
            .n_warps = row_warps(),
            .async_copy = true,
            .eager_load_blocks = true,
            .swizzled = true,
            .Q_mma_load_K_tiles = 0,
            .K_mma_load_K_tiles = 2,
            .V_mma_load_K_tiles = slice_keys() > 16 ? 2 : 0,
            .mma_double_buffer_loads = true,
            .optimized_softmax = true};
  }

  constexpr int q_bytes() const { return B_r * d_head * bytes_of(dtype); }
  constexpr int slice_bytes() const { return slice_keys() * d_head * bytes_of(dtype); }
  constexpr int stage_bytes() const { return 2 * key_warps() * slice_bytes(); }

  // Whether warps are left over. The thread blocks of a launch then share all keys (shares.cuh).
  constexpr bool shares_keys() const { return key_warps() > 1; }

  // Log-sum-exps of what the warps leave at the end; the sums lie where keys were, and where these
  // take less, where the queries were too.
  constexpr int lse_bytes() const { return key_warps() * B_r * 4; }
  constexpr int sums_offset() const { return B_r > n_stages * B_c ? 0 : q_bytes(); }
  static constexpr int kFlagBytes = 16;
  // Pieces of shares that each warp knows: where it is, and what is on its way (piece_ring.cuh).
  static constexpr int kPieceBytes = 88;
  constexpr int piece_ring_bytes() const { return (n_stages + 1) * kPieceBytes; }
  constexpr int pieces_bytes() const { return shares_keys() ? n_warps * piece_ring_bytes() : 0; }

  constexpr int lse_offset() const { return q_bytes() + n_stages * stage_bytes(); }
  constexpr int flag_offset() const { return lse_offset() + lse_bytes(); }
  constexpr int pieces_offset() const { return flag_offset() + kFlagBytes; }

  // Attention alone has any: with as much, few thread blocks of the others would fit.
  constexpr int smem_bytes(Variant variant = Variant::kServe) const {
    if (variant != Variant::kServe) return 0;
    return pieces_offset() + pieces_bytes();
  }
  // Thread blocks per multiprocessor that the register budget is planned for, where a
  // multiprocessor has as much shared memory as any (228 KB, of which a thread block takes 1 more).
  constexpr int min_blocks_per_sm() const {
    return n_warps <= 4 && smem_bytes() <= 113 * 1024 ? 2 : 1;
  }
};

}  // namespace flash::sm80_serve
