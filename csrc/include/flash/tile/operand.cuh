// Matmul operands: 16x16 tiles of shared memory in the registers of a warp.
#pragma once

#include "flash/ptx/ldmatrix.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/tile/load_schedule.h"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash {

// One ldmatrix.x4 reads a 16x16 tile as four 8x8 matrices, and the order in which the lanes name
// them is the order of the four registers. An mma takes its operands from consecutive registers, so
// the order matters: a wrong one is correct but costs a register move for every second load.
//   kRowsFirst     r = (rows 0-7, columns 0-7), (rows 8-15, 0-7), (rows 0-7, 8-15), (rows 8-15,
//   8-15):
//                  Q, the row-major A of S = Q K^T, and V, whose transposed matrices are (b0, b1)
//                  of two neighbouring n-tiles
//   kColumnsFirst  r = (rows 0-7, columns 0-7), (rows 0-7, 8-15), (rows 8-15, 0-7), (rows 8-15,
//   8-15):
//                  K, stored [n][k]: (b0, b1) of two neighbouring n-tiles
enum class MatrixOrder { kRowsFirst, kColumnsFirst };
using Fragment = uint32_t[4];

// The lane's addresses of a tile: one register per value of the swizzle's XOR, everything else is
// an immediate of the ldmatrix.
template <typename Tile>
struct LaneAddress {
  uint32_t base;

  // `tile_start`: shared address of row 0, chunk 0 of the tile row that lane addresses count from;
  // `chunk`: the column that they count from, where none goes beyond the swizzle span it is in, or
  // it begins one.
  FLASH_DEVICE LaneAddress(uint32_t tile_start, int lane, MatrixOrder order, int chunk = 0)
      : base(tile_start + (order == MatrixOrder::kRowsFirst
                               ? Tile::offset(lane % 16, chunk + lane / 16)
                               : Tile::offset(lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2))) {}

  // Gives back the registers of the XORed addresses: they are cheap to compute again.
  FLASH_DEVICE void forget() { ptx::forget(base); }

  // The 16x16 tile `kRowTile` tiles down and `kColumnTile` to the right, kTileOffset bytes behind.
  template <int kTileOffset, int kRowTile, int kColumnTile, bool kTranspose>
  FLASH_DEVICE void load(Fragment& r) const {
    constexpr int kDeltaChunks = kColumnTile * 2;
    constexpr int kImmediate =
        kTileOffset + kRowTile * 16 * Tile::kRowBytes + Tile::add_bytes(kDeltaChunks);
    const uint32_t address = base ^ Tile::xor_bytes(kDeltaChunks);
    if constexpr (kTranspose) {
      ptx::ldmatrix_x4_trans<kImmediate>(address, r);
    } else {
      ptx::ldmatrix_x4<kImmediate>(address, r);
    }
  }
};

// An operand of kOuterTiles x kKTiles tiles of 16x16, of which Schedule::kSlots k-tiles are in
// registers. kKAlongRows: the k dimension runs down the shared tile's rows (V) instead of along its
// columns (Q, K).
template <typename Tile, int kTileOffset, int kOuterTiles, typename Schedule, bool kKAlongRows>
struct Operand {
  Fragment fragments[Schedule::kSlots][kOuterTiles];

  template <int kKTile>
  FLASH_DEVICE void load_k_tile(const LaneAddress<Tile>& lane) {
    static_for<0, kOuterTiles>([&](auto outer) {
      constexpr int kOuter = outer;
      constexpr int kRowTile = kKAlongRows ? kKTile : kOuter;
      constexpr int kColumnTile = kKAlongRows ? kOuter : kKTile;
      lane.template load<kTileOffset, kRowTile, kColumnTile, kKAlongRows>(
          fragments[Schedule::slot(kKTile)][kOuter]);
    });
  }

  FLASH_DEVICE void prologue(const LaneAddress<Tile>& lane) {
    static_for<0, Schedule::kPrologueTiles>([&](auto tile) { load_k_tile<tile>(lane); });
  }

  // The loads that the schedule puts before the mma of k-tile kKTile.
  template <int kKTile>
  FLASH_DEVICE void before_mma(const LaneAddress<Tile>& lane) {
    static_for<Schedule::first(kKTile), Schedule::last(kKTile)>(
        [&](auto tile) { load_k_tile<tile>(lane); });
  }

  FLASH_DEVICE const Fragment& at(int k_tile, int outer) const {
    return fragments[Schedule::slot(k_tile)][outer];
  }
};

}  // namespace flash
