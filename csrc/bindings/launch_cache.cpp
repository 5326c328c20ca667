#include "launch_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace py = pybind11;

namespace flash {
namespace {

// What is read and written in 16-byte pieces has elements of 16 bits.
constexpr std::uintptr_t kAlignmentBytes = 16;
constexpr int kAlignedBits = 16;

std::uintptr_t address(const dlpack::Tensor& tensor) {
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

// An empty range overlaps nothing.
bool overlap(std::uintptr_t a, std::int64_t a_bytes, std::uintptr_t b, std::int64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + static_cast<std::uintptr_t>(b_bytes) &&
         b < a + static_cast<std::uintptr_t>(a_bytes);
}

}  // namespace

bool requires_grad(py::handle tensor) {
  if (tensor.is_none()) return false;
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  PyObject* const value = PyObject_GetAttr(tensor.ptr(), name);
  if (value == nullptr) throw PythonErrorSet{};
  const bool yes = value == Py_True;
  Py_DECREF(value);
  return yes;
}

bool is_usual_scale(py::handle scale) {
  return scale.is_none() || (PyFloat_CheckExact(scale.ptr()) && PyFloat_AS_DOUBLE(scale.ptr()) > 0);
}

std::size_t hash_of(std::span<const std::int64_t> words) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const std::int64_t word : words) {
    hash = std::rotl((hash ^ static_cast<std::uint64_t>(word)) * 0xff51afd7ed558ccdu, 31);
  }
  return hash;
}

template <typename Calls>
LaunchCache<Calls>::LaunchCache(py::object tensor_type, py::capsule exchange_api)
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

template <typename Calls>
bool LaunchCache<Calls>::begin(Query& query, py::handle config, py::handle softmax_scale,
                               py::handle causal) {
  query.key_[0] = reinterpret_cast<std::int64_t>(config.ptr());
  if (!softmax_scale.is_none()) {
    if (!PyFloat_CheckExact(softmax_scale.ptr())) return false;
    query.key_[1] = 1;
    query.key_[2] = std::bit_cast<std::int64_t>(PyFloat_AS_DOUBLE(softmax_scale.ptr()));
  }
  if (!PyBool_Check(causal.ptr())) return false;
  query.key_[3] = causal.ptr() == Py_True;
  return true;
}

template <typename Calls>
bool LaunchCache<Calls>::add(Query& query, int index, py::handle object, bool heads_first) const {
  if (object.is_none()) return true;
  // Exactly this type: the exchange function does not check, and subclasses may mean something
  // else.
  if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != tensor_type_.ptr()) return false;
  dlpack::Tensor& tensor = query.tensors_[index];
  if (api_->tensor_from_object(object.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  if (tensor.device.type != dlpack::kDeviceCuda || tensor.ndim < 3 || tensor.ndim > 4) return false;
  std::int64_t* const words = &query.key_[kCallWords + index * kWordsPerTensor];
  words[0] = (std::int64_t{tensor.device.id} << 32) | (std::int64_t{tensor.ndim} << 24) |
             (std::int64_t{tensor.dtype.lanes} << 16) | (std::int64_t{tensor.dtype.code} << 8) |
             std::int64_t{tensor.dtype.bits};
  for (int i = 0; i < tensor.ndim; ++i) {
    words[1 + i] = tensor.shape[i];
    words[5 + i] = tensor.strides[i];
  }
  if (heads_first) {
    std::swap(words[2], words[3]);
    std::swap(words[6], words[7]);
  }
  return true;
}

template <typename Calls>
bool LaunchCache<Calls>::describe(py::handle config, const Objects& objects,
                                  py::handle softmax_scale, py::handle causal, Query& query) const {
  if (!begin(query, config, softmax_scale, causal)) return false;
  for (int i = 0; i < kTensors; ++i) {
    if (!add(query, i, objects[i])) return false;
  }
  return true;
}

template <typename Calls>
bool LaunchCache<Calls>::can_lie_at(const Addresses& at, const Tensors& tensors, const Call& call) {
  for (int i = 0; i < kTensors; ++i) {
    // Freed memory, or a tensor that has its values elsewhere: the shape is the same.
    if (at[i] == 0 && call.extent_bytes[i] > 0) return false;
    // The others are fp32, and read one by one, or scratch memory.
    if (tensors[i].dtype.bits == kAlignedBits && at[i] % kAlignmentBytes != 0) return false;
  }
  for (int output = Calls::kInputs; output < kTensors; ++output) {
    for (int other = 0; other < output; ++other) {
      if (overlap(at[output], call.extent_bytes[output], at[other], call.extent_bytes[other])) {
        return false;
      }
    }
  }
  return true;
}

template <typename Calls>
bool LaunchCache<Calls>::again(py::handle config, const Objects& objects, py::handle softmax_scale,
                               py::handle causal, bool grad_enabled) {
  Query query;
  if (!describe(config, objects, softmax_scale, causal, query)) return false;
  if (grad_enabled && std::any_of(objects.begin(), objects.end(), requires_grad)) return false;
  return launch(query);
}

template <typename Calls>
bool LaunchCache<Calls>::launch(const Query& query) {
  const auto found = calls_.find(query.key_);
  if (found == calls_.end()) return false;
  const Call& call = found->second;

  Addresses at{};
  std::transform(query.tensors_.begin(), query.tensors_.end(), at.begin(), address);
  if (!can_lie_at(at, query.tensors_, call)) return false;
  void* stream = nullptr;
  const dlpack::Device device = query.tensors_[0].device;
  if (api_->current_stream(device.type, device.id, &stream) != 0) throw PythonErrorSet{};

  Args args = call.args;
  std::memcpy(&args, at.data(), sizeof(at));
  Calls::kLaunch(call.kernel_id, args, device.id, static_cast<cudaStream_t>(stream));
  return true;
}

template <typename Calls>
void LaunchCache<Calls>::remember(py::object config, const Objects& objects,
                                  py::handle softmax_scale, py::handle causal,
                                  std::size_t kernel_id, const py::bytes& args) {
  Query query;
  if (!describe(config, objects, softmax_scale, causal, query)) return;
  Call call{.config = std::move(config), .kernel_id = kernel_id, .args = {}, .extent_bytes = {}};
  if (PyBytes_GET_SIZE(args.ptr()) != sizeof(Args)) {
    throw std::invalid_argument("args is not an argument record of " +
                                std::to_string(sizeof(Args)) + " bytes");
  }
  std::memcpy(&call.args, PyBytes_AS_STRING(args.ptr()), sizeof(Args));
  for (int i = 0; i < kTensors; ++i) {
    call.extent_bytes[i] = objects[i].is_none() ? 0 : extent_bytes(query.tensors_[i]);
  }
  if (calls_.size() >= kMaxCalls) calls_.clear();
  calls_.insert_or_assign(query.key_, std::move(call));
}

template class LaunchCache<ForwardCalls>;
template class LaunchCache<BackwardCalls>;

}  // namespace flash
