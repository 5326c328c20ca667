#include "tensor_addresses.h"

#include <functional>
#include <numeric>
#include <utility>

#include "python_calls.h"
#include "tensor_reader.h"

namespace py = pybind11;

namespace flash {

TensorAddresses::TensorAddresses(py::object exchange_api) : capsule_(std::move(exchange_api)) {
  if (PyCapsule_IsValid(capsule_.ptr(), dlpack::kCapsuleName) == 0) return;
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule_.ptr(), dlpack::kCapsuleName));
  const bool is_known = api->header.version.major == dlpack::kMajorVersion;
  if (is_known && api->tensor_from_object != nullptr) api_ = api;
}

TensorAddresses::Found TensorAddresses::of(py::handle tensor) const {
  static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
  static PyObject* const numel = PyUnicode_InternFromString("numel");
  if (api_ == nullptr) return {asked_number(tensor, data_ptr), asked_number(tensor, numel)};
  dlpack::Tensor found{};
  if (api_->tensor_from_object(tensor.ptr(), &found) != 0) throw PythonErrorSet{};
  return {flash::address_of(found),
          std::accumulate(found.shape, found.shape + found.ndim, std::uint64_t{1},
                          std::multiplies<std::uint64_t>())};
}

}  // namespace flash
