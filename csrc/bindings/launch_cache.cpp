#include "launch_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace py = pybind11;

namespace flash {

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

int device_of(TensorWords words) { return static_cast<int>(words[0] >> 32); }

std::size_t hash_of(std::span<const std::int64_t> words) {
  // Four chains, of which none waits for the others' multiplications.
  constexpr std::size_t kChains = 4;
  std::array<std::uint64_t, kChains> chains = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u,
                                               0x94d049bb133111ebu, 0xd6e8feb86659fd93u};
  const auto mixed = [](std::uint64_t hash, std::uint64_t word) {
    return std::rotl((hash ^ word) * 0xff51afd7ed558ccdu, 31);
  };
  for (; words.size() >= kChains; words = words.subspan(kChains)) {
    for (std::size_t i = 0; i < kChains; ++i) {
      chains[i] = mixed(chains[i], static_cast<std::uint64_t>(words[i]));
    }
  }
  for (const std::int64_t word : words) {
    chains[0] = mixed(chains[0], static_cast<std::uint64_t>(word));
  }
  return mixed(mixed(chains[0], chains[1]), mixed(chains[2], chains[3]));
}

template <typename Calls>
LaunchCache<Calls>::LaunchCache(py::object tensor_type, py::capsule exchange_api)
    : reader_(std::move(tensor_type), std::move(exchange_api)) {}

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
  dlpack::Tensor& tensor = query.tensors_[index];
  if (!reader_.read(object, tensor) || tensor.ndim < 3 || tensor.ndim > 4) return false;
  std::int64_t* const words = &query.key_[kCallWords + index * kWordsPerTensor];
  words[0] = kind_word(tensor);
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
    if (!is_aligned(tensors[i], at[i])) return false;
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
  std::transform(query.tensors_.begin(), query.tensors_.end(), at.begin(), address_of);
  if (!can_lie_at(at, query.tensors_, call)) return false;
  const dlpack::Device device = query.tensors_[0].device;
  const cudaStream_t stream = reader_.current_stream(device);

  Args args = call.args;
  std::memcpy(&args, at.data(), sizeof(at));
  Calls::kLaunch(call.kernel_id, args, device.id, stream);
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
