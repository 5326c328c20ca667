// Matrix descriptors: how wgmma finds a swizzled tile in shared memory (PTX ISA 9.7.15.5.1).
//
// A tile is stored as chunks of [rows][swizzle bytes], one behind the other, each as the copy
// engine writes it with the same swizzle. Plain C++: tests decode what this encodes.
#pragma once

#include <cstdint>

namespace flash {

// Fields in units of 16 bytes: address in bits 0-13, leading byte offset in 16-29, stride byte
// offset in 32-45, swizzle mode in 62-63.
template <int kSwizzleBytes>
struct MatrixDescriptor {
  static_assert(kSwizzleBytes == 128 || kSwizzleBytes == 64);
  static constexpr uint64_t kMode = kSwizzleBytes == 128 ? 1 : 2;
  // Eight rows of a chunk make one swizzle atom.
  static constexpr uint64_t kAtomStride = 8 * kSwizzleBytes / 16;

  static constexpr uint64_t encode(uint64_t leading, uint64_t stride) {
    return kMode << 62 | stride << 32 | leading << 16;
  }

  // K-major (rows are the matrix's outer dimension): the leading offset is not used.
  static constexpr uint64_t kKMajor = encode(1, kAtomStride);

  // MN-major (columns of the chunk are the outer dimension): the leading offset leads to the next
  // chunk.
  static constexpr uint64_t mn_major(int chunk_bytes) {
    return encode(static_cast<uint64_t>(chunk_bytes) / 16, kAtomStride);
  }

  // Descriptor offset of k-step `step` (16 columns) in a K-major tile of chunks of `chunk_bytes`.
  static constexpr uint64_t k_step(int step, int chunk_bytes) {
    constexpr int kStepsPerChunk = kSwizzleBytes / 32;
    const int chunk = step / kStepsPerChunk;
    return static_cast<uint64_t>(chunk * chunk_bytes + step % kStepsPerChunk * 32) / 16;
  }

  // Descriptor offset of k-step `step` (16 rows) in an MN-major tile.
  static constexpr uint64_t mn_step(int step) {
    return static_cast<uint64_t>(step) * 16 * kSwizzleBytes / 16;
  }
};

// The address part. Shared memory ends below 256 KiB, so 14 bits of 16-byte units suffice.
constexpr uint64_t descriptor_address(uint32_t shared_address) { return shared_address >> 4; }

}  // namespace flash
