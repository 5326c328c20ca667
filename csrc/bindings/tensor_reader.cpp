#include "tensor_reader.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

constexpr std::uintptr_t kAlignmentBytes = 16;
constexpr int kAlignedBits = 16;

}  // namespace

TensorReader::TensorReader(py::object tensor_type, py::capsule exchange_api)
    : tensor_type_(std::move(tensor_type)), capsule_(std::move(exchange_api)) {
  api_ = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule_.ptr(), dlpack::kCapsuleName));
  if (api_ == nullptr) throw PythonErrorSet{};
  if (api_->header.version.major != dlpack::kMajorVersion || api_->tensor_from_object == nullptr) {
    throw std::invalid_argument("the tensors' DLPack exchange API has version " +
                                std::to_string(api_->header.version.major) + "." +
                                std::to_string(api_->header.version.minor) + ": expected 1.x");
  }
}

bool TensorReader::read(py::handle object, dlpack::Tensor& tensor) const {
  // Exactly these types: the exchange function does not check, and subclasses may mean something
  // else.
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (type != tensor_type_.ptr() && type != other_type_.ptr()) return false;
  if (api_->tensor_from_object(object.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  return tensor.device.type == dlpack::kDeviceCuda;
}

cudaStream_t TensorReader::current_stream(const dlpack::Device& device) const {
  void* stream = nullptr;
  if (api_->current_stream(device.type, device.id, &stream) != 0) throw PythonErrorSet{};
  return static_cast<cudaStream_t>(stream);
}

std::uintptr_t address_of(const dlpack::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
}

std::int64_t extent_bytes(const dlpack::Tensor& tensor) {
  std::int64_t last = 0;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return 0;
  }
  for (int i = 0; i < tensor.ndim; ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return (last + 1) * tensor.dtype.bits / 8;
}

bool is_contiguous(const dlpack::Tensor& tensor) {
  std::int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::int64_t kind_word(const dlpack::Tensor& tensor) {
  return (std::int64_t{tensor.device.id} << 32) | (std::int64_t{tensor.ndim} << 24) |
         (std::int64_t{tensor.dtype.lanes} << 16) | (std::int64_t{tensor.dtype.code} << 8) |
         std::int64_t{tensor.dtype.bits};
}

bool is_aligned(const dlpack::Tensor& tensor, std::uintptr_t address) {
  return tensor.dtype.bits != kAlignedBits || address % kAlignmentBytes == 0;
}

bool overlap(std::uintptr_t a, std::int64_t a_bytes, std::uintptr_t b, std::int64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + static_cast<std::uintptr_t>(b_bytes) &&
         b < a + static_cast<std::uintptr_t>(a_bytes);
}

}  // namespace flash
