// What tensors of PyTorch, or of another array library, are: read without their headers.
#pragma once

#include <cuda_runtime_api.h>
#include <pybind11/pytypes.h>

#include <cstdint>
#include <utility>

#include "dlpack_exchange.h"

namespace flash {

class TensorReader {
 public:
  // The tensor type, and the capsule type.__dlpack_c_exchange_api__; raises ValueError for a DLPack
  // version that this code does not know.
  TensorReader(pybind11::object tensor_type, pybind11::capsule exchange_api);

  // Reads tensors of this type as well: one that means the same.
  void read_too(pybind11::object tensor_type) { other_type_ = std::move(tensor_type); }

  // False for what is no tensor of exactly this type, or that, or not of a CUDA device.
  bool read(pybind11::handle object, dlpack::Tensor& tensor) const;

  // On which the array library would launch now.
  cudaStream_t current_stream(const dlpack::Device& device) const;

 private:
  pybind11::object tensor_type_, other_type_;
  pybind11::capsule capsule_;
  const dlpack::ExchangeApi* api_;
};

// Of the first element.
std::uintptr_t address_of(const dlpack::Tensor& tensor);

// From the first element to the end of the last; of a tensor without elements 0.
std::int64_t extent_bytes(const dlpack::Tensor& tensor);

// Without gaps, the last dimension first.
bool is_contiguous(const dlpack::Tensor& tensor);

// Device, type and number of dimensions.
std::int64_t kind_word(const dlpack::Tensor& tensor);

// Whether the kernels, which read and write elements of 16 bits in pieces of 16 bytes, can have the
// tensor there. The others are fp32 or int32, and read one by one, or scratch memory.
bool is_aligned(const dlpack::Tensor& tensor, std::uintptr_t address);

// An empty range overlaps nothing.
bool overlap(std::uintptr_t a, std::int64_t a_bytes, std::uintptr_t b, std::int64_t b_bytes);

}  // namespace flash
