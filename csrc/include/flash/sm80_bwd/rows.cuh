// Where rows of a tensor lie in global memory.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::sm80_bwd {

// Rows of one head of a tensor.
struct Rows {
  char* first;
  int64_t row_bytes;
};

// `strides`: the argument record's three of the tensor. 16-bit elements.
FLASH_DEVICE Rows rows_of(const void* tensor, const int64_t& stride_batch, int64_t stride_seq,
                          int64_t stride_head, int64_t batch, int64_t head, int64_t row) {
  const int64_t element = batch * stride_batch + head * stride_head + row * stride_seq;
  return {static_cast<char*>(const_cast<void*>(tensor)) + element * 2, stride_seq * 2};
}

}  // namespace flash::sm80_bwd
