// The configuration of the Ampere family's serving kernels for MLA: every choice that is fixed at
// compile time.
//
// Plain C++20 (no CUDA), so host code, device code and tests share it. The fields, their order and
// their meaning are those of `AmpereMlaKernelConfig` in
// py/flash_helpers/kernels/sm80_serve_mla/config.py; tests/config/test_cpp_contracts.py compares
// the two. It is a structural type: kernels take it as a non-type template argument.
#pragma once

#include "flash/core/dtype.h"
#include "flash/core/variant.h"
#include "flash/sm80_serve/config.h"

namespace flash::sm80_serve_mla {

struct AmpereMlaKernelConfig {
  DType dtype;
  int d_head;    // elements of a key: first those that are its value, then those that are rotated
  int B_r;       // rows of a tile: a query of one head each
  int B_c;       // keys of a block
  int n_warps;   // they share rows and keys of the scores, and columns of the output
  int n_stages;  // blocks of keys in shared memory

  constexpr bool operator==(const AmpereMlaKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kRotated = 64;  // elements of a key
  constexpr int d_v() const { return d_head - kRotated; }

  // What tiles, shares, parts and masks are told: 16 rows of a tile to a warp, and the keys of a
  // block shared by those that are left over. Of the output, d_head is what there is.
  constexpr sm80_serve::AmpereServeKernelConfig serving() const {
    return {.dtype = dtype,
            .d_head = d_v(),
            .B_r = B_r,
            .B_c = B_c,
            .n_warps = n_warps,
            .n_stages = n_stages};
  }
  constexpr int n_threads(Variant = Variant::kServe) const { return serving().n_threads(); }
  constexpr int row_warps() const { return serving().row_warps(); }
  constexpr int key_warps() const { return serving().key_warps(); }
  constexpr int slice_keys() const { return serving().slice_keys(); }
  constexpr int combining_blocks() const { return serving().combining_blocks(); }
  constexpr int warp_columns() const { return d_v() / n_warps; }  // of the output
  constexpr int warp_keys() const { return B_c / n_warps; }       // of a block, to copy

  // Where a tile has few rows, two warps share the depth of the scores of two slices: half of a
  // row of queries fits the registers beside the output, and comes through the stage that is free.
  constexpr int depth_parts() const { return B_r <= 16 ? 2 : 1; }
  constexpr bool keeps_queries() const { return depth_parts() > 1; }

  constexpr int row_bytes() const { return d_head * bytes_of(dtype); }
  constexpr int q_bytes() const { return keeps_queries() ? 0 : B_r * row_bytes(); }
  constexpr int stage_bytes() const { return B_c * row_bytes(); }
  constexpr int weight_bytes() const { return B_r * B_c * bytes_of(dtype); }
  constexpr int stats_bytes() const { return B_r * key_warps() * 4; }  // of rows, by each slice
  constexpr int given_bytes() const { return keeps_queries() ? n_threads() * 16 : 0; }
  static constexpr int kStateBytes = 16;  // of a warp (parked.cuh)
  static constexpr int kFlagBytes = 16;

  constexpr int weights_offset() const { return q_bytes() + n_stages * stage_bytes(); }
  constexpr int given_offset() const { return weights_offset() + weight_bytes(); }
  constexpr int stats_offset() const { return given_offset() + given_bytes(); }
  constexpr int state_offset() const { return stats_offset() + stats_bytes(); }
  constexpr int pieces_offset() const { return state_offset() + n_warps * kStateBytes; }
  constexpr int flag_offset() const {
    return pieces_offset() + n_warps * serving().piece_ring_bytes();
  }

  // Attention alone has any: with as much, few thread blocks of the others would fit.
  constexpr int smem_bytes(Variant variant = Variant::kServe) const {
    return variant == Variant::kServe ? flag_offset() + kFlagBytes : 0;
  }
  // Thread blocks per multiprocessor that the register budget is planned for.
  static constexpr int min_blocks_per_sm() { return 1; }
};

}  // namespace flash::sm80_serve_mla
