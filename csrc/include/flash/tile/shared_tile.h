// Where the elements of a block of rows lie in shared memory, with and without the XOR swizzle.
//
// A row of d_head 16-bit elements is d_head / 8 chunks of 16 bytes; rows follow each other without
// padding. Swizzled, chunk c of row r is stored in place c ^ (r % 8): the eight rows that one
// ldmatrix matrix reads at the same column then lie in eight different groups of four banks.
// Unswizzled they share one group (rows are 128 or 256 bytes apart), an eight-fold conflict. Rows
// of an odd number of four chunks (d_head 32, 96) alternate between two halves of the banks, so
// that they are swizzled in pairs, within four chunks: place c ^ (r / 2 % 4).
//
// Plain C++: tests/device/tile/test_plain_headers.py compares the addresses.
#pragma once

namespace flash {

template <int kDHead, bool kSwizzled>
struct SharedTile {
  static constexpr int kChunkBytes = 16;
  static constexpr int kRowBytes = kDHead * 2;
  static constexpr int kChunksPerRow = kRowBytes / kChunkBytes;
  static constexpr int kSwizzleRows = 8;  // after which the places repeat themselves
  // Chunks that exchange places.
  static constexpr int kSwizzleSpan = kChunksPerRow % kSwizzleRows == 0 ? kSwizzleRows : 4;
  static constexpr int kRowsOfOnePlace = kSwizzleRows / kSwizzleSpan;
  // Byte-offset bits that the swizzle can change: the low bits of the chunk index.
  static constexpr int kSwizzleSpanBytes = kSwizzleSpan * kChunkBytes;

  static_assert(kChunksPerRow % kSwizzleSpan == 0, "a row must hold whole swizzle spans");

  // Byte offset of a chunk from the start of the tile.
  static constexpr int offset(int row, int chunk) {
    const int place = kSwizzled ? chunk ^ (row / kRowsOfOnePlace % kSwizzleSpan) : chunk;
    return row * kRowBytes + place * kChunkBytes;
  }

  // offset(row, chunk + delta_chunks) from offset(row, chunk), for even deltas on a chunk below 2.
  // Only the bits inside the swizzle span need an XOR, the rest is a constant that fits the
  // instruction's immediate: xor_bytes() and add_bytes() split it.
  static constexpr int xor_bytes(int delta_chunks) {
    return kSwizzled ? (delta_chunks * kChunkBytes) % kSwizzleSpanBytes : 0;
  }
  static constexpr int add_bytes(int delta_chunks) {
    return delta_chunks * kChunkBytes - xor_bytes(delta_chunks);
  }
};

}  // namespace flash
