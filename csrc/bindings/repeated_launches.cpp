#include "repeated_launches.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "flash/core/error.h"
#include "python_calls.h"
#include "tensor_reader.h"

namespace py = pybind11;

namespace flash {
namespace {

constexpr int kNotInitialized = 3;    // CUDA_ERROR_NOT_INITIALIZED
constexpr int kInvalidContext = 201;  // CUDA_ERROR_INVALID_CONTEXT

std::uint64_t number_of(py::handle value) {
  const std::uint64_t number = PyLong_AsUnsignedLongLong(value.ptr());
  if (number == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) {
    throw PythonErrorSet{};
  }
  return number;
}

// Of a method without arguments.
py::object asked(py::handle object, PyObject* name) {
  return owned(PyObject_CallMethodNoArgs(object.ptr(), name));
}

std::uint64_t asked_number(py::handle object, PyObject* name) {
  return number_of(asked(object, name));
}

}  // namespace

RepeatedLaunches::RepeatedLaunches(LaunchKernel launch, RepeatedWays ways, RepeatedMemory memory,
                                   std::vector<RepeatedStep> steps, std::vector<std::size_t> result,
                                   bool single)
    : launch_(launch),
      ways_(std::move(ways)),
      memory_(std::move(memory)),
      steps_(std::move(steps)),
      result_(std::move(result)),
      single_(single) {
  const std::size_t seen =
      memory_.needed.size() + memory_.made.size() - (memory_.scratch.empty() ? 0 : 1);
  const std::size_t all = seen + memory_.scratch.size();
  bool fits = all <= kMostTensors && !steps_.empty() && !result_.empty();
  for (const std::size_t position : result_) fits = fits && position < seen;
  for (const auto& [a, b] : memory_.apart) {
    fits = fits && std::max(a, b) < memory_.needed.size();
  }
  for (const RepeatedStep& step : steps_) {
    fits = fits && step.parameters.size() <= kMostParameters;
    for (const auto& [parameter, tensor] : step.addresses) {
      fits = fits && parameter < step.parameters.size() && tensor < all;
    }
  }
  if (!fits) {
    throw std::invalid_argument("positions that there are not among " + std::to_string(all) +
                                " tensors, or too many of anything");
  }
}

bool RepeatedLaunches::read(py::handle given, py::handle at, Addresses& found) const {
  const auto n = static_cast<Py_ssize_t>(memory_.needed.size());
  if (!PyList_CheckExact(given.ptr()) || !PyList_CheckExact(at.ptr()) ||
      PyList_GET_SIZE(given.ptr()) != n || PyList_GET_SIZE(at.ptr()) != n) {
    return false;
  }
  for (Py_ssize_t i = 0; i < n; ++i) found[i] = number_of(PyList_GET_ITEM(at.ptr(), i));
  return true;
}

bool RepeatedLaunches::is_held(py::handle given, const Addresses& at) const {
  static PyObject* const storage = PyUnicode_InternFromString("untyped_storage");
  static PyObject* const nbytes = PyUnicode_InternFromString("nbytes");
  static PyObject* const offset = PyUnicode_InternFromString("storage_offset");
  const auto& needed = memory_.needed;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const py::handle tensor = PyList_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    const auto [n_bytes, item] = needed[i];
    const std::uint64_t before = asked_number(tensor, offset) * static_cast<std::uint64_t>(item);
    const std::uint64_t has = asked_number(asked(tensor, storage), nbytes);
    if (has < before + static_cast<std::uint64_t>(n_bytes)) return false;
  }
  return std::none_of(memory_.apart.begin(), memory_.apart.end(), [&](const auto& pair) {
    const auto [a, b] = pair;
    return overlap(at[a], needed[a].first, at[b], needed[b].first);
  });
}

bool RepeatedLaunches::launch(const Addresses& at, void* stream) {
  bool first = true;
  for (RepeatedStep& step : steps_) {
    std::array<void*, kMostParameters> parameters{};
    for (const auto& [parameter, tensor] : step.addresses) step.parameters[parameter] = at[tensor];
    std::transform(step.parameters.begin(), step.parameters.end(), parameters.begin(),
                   [](std::uint64_t& value) { return &value; });
    const int status =
        launch_(step.function, step.grid[0], step.grid[1], step.grid[2], step.threads, 1, 1,
                step.shared_bytes, stream, parameters.data(), nullptr);
    if (first && (status == kInvalidContext || status == kNotInitialized)) return false;
    if (status != 0) {
      throw CudaError("cuLaunchKernel of an operator returned " + std::to_string(status));
    }
    first = false;
  }
  return true;
}

py::object RepeatedLaunches::again(py::handle given, py::handle at) {
  static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
  Addresses addresses{};
  if (!read(given, at, addresses)) return py::none();
  if (!is_true(called(ways_.ready, ways_.device)) || !is_held(given, addresses)) return py::none();
  std::array<py::object, kMostTensors> made;
  std::size_t n = memory_.needed.size();
  for (std::size_t i = 0; i < memory_.made.size(); ++i) {
    const auto& [size, stride, type] = memory_.made[i];
    made[i] = called(ways_.empty, size, stride, type);
    addresses[n + i] = asked_number(made[i], data_ptr);
  }
  // Free again once the launches are queued: what comes later on the stream may have it.
  if (!memory_.scratch.empty()) {
    const std::size_t last = n + memory_.made.size() - 1;
    const std::uint64_t base = addresses[last];
    std::transform(memory_.scratch.begin(), memory_.scratch.end(), addresses.begin() + last,
                   [base](std::uint64_t offset) { return base + offset; });
  }
  const std::uint64_t stream = number_of(called(ways_.stream_of, ways_.device));
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as PyTorch tells it
  if (!launch(addresses, reinterpret_cast<void*>(stream))) return py::none();
  const auto returned = [&](std::size_t position) {
    if (position >= n) return made[position - n];
    return py::reinterpret_borrow<py::object>(
        PyList_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(position)));
  };
  if (single_) return returned(result_[0]);
  py::object results = owned(PyTuple_New(static_cast<Py_ssize_t>(result_.size())));
  for (std::size_t i = 0; i < result_.size(); ++i) {
    PyTuple_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i),
                     returned(result_[i]).release().ptr());
  }
  return results;
}

}  // namespace flash
