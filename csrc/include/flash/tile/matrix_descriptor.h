// Matrix descriptors: how wgmma finds a swizzled tile in shared memory (PTX ISA 9.7.15.5.1).
//
// A tile is stored as chunks of [rows][swizzle bytes], one after the other, each as the copy
// engine writes it with the same swizzle. Plain C++: tests/device/tile/test_plain_headers.py
// decodes what this encodes.
#pragma once

#include <cstdint>

namespace flash {

// Fields in units of 16 bytes: address in bits 0-13, leading byte offset in 16-29, stride byte
// offset in 32-45, swizzle mode in 62-63. The upper word is fixed for a kernel; steps through the
// tile add to the lower word alone, so that no carry has to be computed.
template <int kSwizzleBytes>
struct MatrixDescriptor {
  static_assert(kSwizzleBytes == 128 || kSwizzleBytes == 64);
  static constexpr uint32_t kMode = kSwizzleBytes == 128 ? 1 : 2;
  // Eight rows of a chunk make one swizzle atom.
  static constexpr uint32_t kAtomStride = 8 * kSwizzleBytes / 16;
  static constexpr uint32_t kUpperWord = kMode << 30 | kAtomStride;

  uint32_t lower_word;

  // Rows are the matrix's outer dimension, columns its k: the leading offset is not used.
  static constexpr MatrixDescriptor k_major(uint32_t shared_address) {
    return {shared_address / 16 | 1u << 16};
  }

  // Columns are the outer dimension, rows its k: the leading offset leads to the next chunk.
  static constexpr MatrixDescriptor mn_major(uint32_t shared_address, int chunk_bytes) {
    return {shared_address / 16 | static_cast<uint32_t>(chunk_bytes) / 16 << 16};
  }

  // k-step `step` (16 columns) of a K-major tile of chunks of `chunk_bytes`.
  constexpr uint64_t k_step(int step, int chunk_bytes) const {
    constexpr int kStepsPerChunk = kSwizzleBytes / 32;
    return at(step / kStepsPerChunk * chunk_bytes + step % kStepsPerChunk * 32);
  }

  // k-step `step` (16 rows) of an MN-major tile.
  constexpr uint64_t mn_step(int step) const { return at(step * 16 * kSwizzleBytes); }

 private:
  constexpr uint64_t at(int offset_bytes) const {
    return static_cast<uint64_t>(kUpperWord) << 32 |
           (lower_word + static_cast<uint32_t>(offset_bytes) / 16);
  }
};

}  // namespace flash
