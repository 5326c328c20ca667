// The configuration of the Hopper family's serving kernels for MLA: every choice that is fixed at
// compile time.
//
// Plain C++20 (no CUDA). The fields, their order and their meaning are those of
// `HopperMlaKernelConfig` in py/flash_helpers/kernels/sm90_serve_mla/config.py;
// tests/config/test_cpp_contracts.py compares the two. A structural type: kernels take it as a
// non-type template argument.
#pragma once

#include "flash/core/dtype.h"
#include "flash/core/variant.h"
#include "flash/sm80_serve_mla/config.h"

namespace flash::sm90_serve_mla {

struct HopperMlaKernelConfig {
  DType dtype;
  int d_head;    // elements of a key: first those that are its value, then those that are rotated
  int B_r;       // rows of a tile: a query of one head each; those of one wgmma
  int B_c;       // keys of a block
  int n_warps;   // that compute: two warpgroups, each of which has half of the output's columns
  int n_stages;  // blocks of keys in shared memory

  constexpr bool operator==(const HopperMlaKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kWarpSize = 32;
  static constexpr int kGroupWarps = 4;

  // Whose tiles, shares, parts and splits these are.
  constexpr sm80_serve_mla::AmpereMlaKernelConfig ampere() const {
    return {.dtype = dtype,
            .d_head = d_head,
            .B_r = B_r,
            .B_c = B_c,
            .n_warps = n_warps,
            .n_stages = n_stages};
  }
  constexpr int d_v() const { return ampere().d_v(); }
  constexpr int combining_blocks() const { return ampere().combining_blocks(); }
  constexpr int group_columns() const { return d_v() * kGroupWarps / n_warps; }  // of the output

  constexpr int compute_threads() const { return n_warps * kWarpSize; }
  // With a warpgroup of which one warp has keys copied.
  constexpr int n_threads(Variant = Variant::kServe) const {
    return compute_threads() + kGroupWarps * kWarpSize;
  }
  // Registers per thread after setmaxnreg: together what the launch allotted, 168 for each.
  static constexpr int kComputeRegisters = 216;
  static constexpr int kProducerRegisters = 72;

  // Rows of shared memory: chunks of so many columns, one after the other.
  static constexpr int kSwizzleBytes = 128;
  static constexpr int kLeastPartRows = 8;  // a swizzle repeats itself after so many rows
  constexpr int chunk_columns() const { return kSwizzleBytes / bytes_of(dtype); }
  constexpr int n_chunks() const { return d_head / chunk_columns(); }
  constexpr int value_chunks() const { return d_v() / chunk_columns(); }
  constexpr int group_chunks() const { return group_columns() / chunk_columns(); }
  constexpr int chunk_bytes(int rows) const { return rows * kSwizzleBytes; }

  constexpr int q_bytes() const { return n_chunks() * chunk_bytes(B_r); }
  constexpr int stage_bytes() const { return n_chunks() * chunk_bytes(B_c); }
  constexpr int weight_bytes() const { return B_r * B_c * bytes_of(dtype); }
  static constexpr int kStateBytes = 160;  // of a warp (place.cuh)
  static constexpr int kFlagBytes = 16;

  constexpr int stages_offset() const { return q_bytes(); }
  constexpr int weights_offset() const { return stages_offset() + n_stages * stage_bytes(); }
  constexpr int factors_offset() const { return weights_offset() + weight_bytes(); }
  constexpr int ends_offset() const { return factors_offset() + B_r * 4; }
  constexpr int state_offset() const { return ends_offset() + B_r * 8; }
  constexpr int state_bytes() const { return n_threads() / kWarpSize * kStateBytes; }
  constexpr int flag_offset() const { return state_offset() + state_bytes(); }
  constexpr int barriers_offset() const { return flag_offset() + kFlagBytes; }
  // Full and empty: of both halves of each stage. And three between the groups (place.cuh).
  constexpr int n_barriers() const { return 4 * n_stages + 3; }

  // Attention alone has any: with as much, few thread blocks of the others would fit.
  constexpr int smem_bytes(Variant variant = Variant::kServe) const {
    return variant == Variant::kServe ? barriers_offset() + 8 * n_barriers() : 0;
  }
  static constexpr int min_blocks_per_sm() { return 1; }
};

}  // namespace flash::sm90_serve_mla
