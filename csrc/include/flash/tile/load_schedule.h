// When a matmul operand's k-tiles travel from shared memory to registers.
//
// `*_mma_load_K_tiles` = 0: all of them before the matmul. n: n k-tiles are held in registers and
// loaded inside the matmul's loop; with double buffering the loads run ahead of the mma by as many
// k-tiles as the registers allow (one when n is 2), otherwise n at a time just before they are
// needed.
//
// Plain C++: tests/device/tile/test_plain_headers.py walks every schedule.
#pragma once

namespace flash {

template <int kTotalTiles, int kLoadTiles, bool kDoubleBuffer>
struct LoadSchedule {
  static constexpr bool kWhole = kLoadTiles == 0;
  static constexpr bool kAhead = !kWhole && kDoubleBuffer;

  static constexpr int wanted_slots() {
    if (kWhole) return kTotalTiles;
    if (kAhead && kLoadTiles == 1) return 2;  // one slot cannot hold this k-tile and the next
    return kLoadTiles;
  }
  static constexpr int kSlots = wanted_slots() < kTotalTiles ? wanted_slots() : kTotalTiles;

  static_assert(kWhole || kTotalTiles % kLoadTiles == 0, "the k-tiles must divide evenly");

  static constexpr int slot(int tile) { return tile % kSlots; }

  // Tiles [0, kPrologueTiles) are loaded before the loop.
  static constexpr int kPrologueTiles = kWhole ? kTotalTiles : (kAhead ? kSlots - 1 : 0);

  // Tiles [first(t), last(t)) are loaded in step t, before the mma of tile t.
  static constexpr int first(int tile) {
    if (kWhole) return 0;
    if (kAhead) return tile + kSlots - 1;
    return tile;
  }
  static constexpr int last(int tile) {
    if (kWhole) return 0;
    if (kAhead) return first(tile) < kTotalTiles ? first(tile) + 1 : first(tile);
    return tile % kSlots == 0 ? tile + kSlots : tile;
  }
};

}  // namespace flash
