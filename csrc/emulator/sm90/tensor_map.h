// The emulator's own tensor maps: what py/flash_helpers/emulator/sm90/tensor_map.py packs, in place
// of the 128 bytes that cuTensorMapEncodeTiled writes and does not document.
#pragma once

#include <algorithm>

#include "types.h"

namespace emulator {

struct alignas(64) TensorMap {
  static constexpr u64 kMagic = 0x3150414D554D4546;  // "FEMUMAP1"
  static constexpr u32 kMaxRank = 5;

  u64 magic;
  u64 address;
  u64 strides[kMaxRank - 1];  // bytes, of dimensions 1 and up
  u32 dims[kMaxRank];         // elements, innermost first
  u16 box[kMaxRank];          // elements
  u8 rank;
  u8 element_bytes;
  u8 swizzle;  // bytes of a row of shared memory whose pieces are permuted: 0, 32, 64 or 128
  u8 reserved[128 - 8 - 8 - 32 - 20 - 10 - 3];

  u32 row_bytes() const { return u32{box[0]} * element_bytes; }
  u32 n_rows() const {
    u32 rows = 1;
    for (u32 i = 1; i < rank; ++i) rows *= box[i];
    return rows;
  }
  u32 box_bytes() const { return row_bytes() * n_rows(); }
  // From row to row in shared memory: shorter rows than those that are swizzled leave gaps (seen on
  // the H200; the conformance suite has two such boxes).
  u32 pitch() const { return std::max(row_bytes(), u32{swizzle}); }
  u32 shared_bytes() const { return pitch() * n_rows(); }
};
static_assert(sizeof(TensorMap) == 128);

// Where the 16 bytes at a shared-memory address lie when its rows of `span` bytes are swizzled:
// bits 4 and up are XORed with those from bit 7 on. Wgmma's descriptors and tensor maps share it.
inline u32 swizzled(u32 address, u32 span) {
  if (span <= 16) return address;
  return address ^ ((address >> 7 & (span / 16 - 1)) << 4);
}

// The part of a box's row that lies inside the tensor.
struct BoxRow {
  u32 offset;   // of the whole row in shared memory, bytes
  u64 address;  // in global memory
  u32 first;    // bytes into the row
  u32 bytes;    // 0: none
};

// Calls visit(BoxRow) for all rows of the box at `place`, in the order of shared memory.
template <typename Visit>
void for_each_row(const TensorMap& map, const s32* place, Visit visit) {
  const s64 begin = std::clamp<s64>(-s64{place[0]}, 0, map.box[0]);
  const s64 end = std::clamp<s64>(s64{map.dims[0]} - place[0], begin, map.box[0]);
  u32 index[TensorMap::kMaxRank] = {};
  for (u32 row = 0, rows = map.n_rows(); row < rows; ++row) {
    bool inside = begin < end;
    u64 address = map.address + u64(place[0] + begin) * map.element_bytes;
    for (u32 i = 1; i < map.rank; ++i) {
      s64 at = s64{place[i]} + index[i];
      inside &= at >= 0 && at < s64{map.dims[i]};
      address += u64(at) * map.strides[i - 1];
    }
    visit(BoxRow{row * map.pitch(), address, u32(begin) * map.element_bytes,
                 inside ? u32(end - begin) * map.element_bytes : 0});
    for (u32 i = 1; i < map.rank && ++index[i] == map.box[i]; ++i) index[i] = 0;
  }
}

}  // namespace emulator
