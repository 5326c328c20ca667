// Tensor maps: what the copy engine (TMA) must know of a tensor in global memory.
#pragma once

#include <cstdint>

#include "flash/core/dtype.h"
#include "flash/sm90/args.h"

namespace flash::sm90 {

// A tensor [batch, seqlen, n_heads, d_head] with a contiguous last dimension, and the box of it
// that one copy moves: `box_rows` rows of one head, as chunks of swizzled rows of shared memory.
struct TensorMapKey {
  const void* address;   // 16-byte aligned
  int64_t stride_batch;  // in elements; of a dimension of size 1: anything
  int64_t stride_seq;
  int64_t stride_head;
  int32_t batch;
  int32_t seqlen;
  int32_t n_heads;
  int32_t d_head;
  int32_t box_rows;
  int32_t swizzle_bytes;  // of a chunk's row: 32, 64 or 128; other rows are not swizzled
  DType dtype;
  int32_t box_chunks = 0;  // of a box, which may be more; 0: all
  // Of how many heads each the map's dimensions are (column, head, row, group of heads, batch),
  // with boxes of a chunk's columns, `box_heads` and `box_rows`. 0: there is one head in a box.
  int32_t group_heads = 0;
  int32_t box_heads = 0;

  bool operator==(const TensorMapKey&) const = default;
};

// Whether a map can have a stride of so many elements.
constexpr bool can_be_copied(int64_t stride, DType dtype) {
  constexpr int64_t kMaxBytes = (int64_t{1} << 40) - 1;
  return stride >= 0 && stride <= kMaxBytes / bytes_of(dtype);
}

// The map of a tensor. Encoded once for a key: a small cache in every thread remembers the latest,
// and cannot be stale, because a map depends on nothing but its key. The reference is good until
// this thread's next call.
//
// Throws CudaError with all fields if the driver refuses them, or has no tensor maps.
const TensorMap& tensor_map(const TensorMapKey& key);

// Looks the driver's encoder up. The first tensor_map() would do it too, but maybe during a stream
// capture.
void prepare_tensor_maps();

}  // namespace flash::sm90
