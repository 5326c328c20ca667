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
constexpr int kClusterDimension = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION

// A list of functions with the methods of one, or what stands in its place: a function, or None.
bool has_hooks(py::handle object, py::handle name) {
  static PyObject* const calls = PyUnicode_InternFromString("calls");
  const py::object hooks = owned(PyObject_GetAttr(object.ptr(), name.ptr()));
  PyObject* const list = PyObject_GetAttr(hooks.ptr(), calls);
  if (list != nullptr) return is_true(owned(list));
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw PythonErrorSet{};
  PyErr_Clear();
  return is_true(hooks);
}

void put_scratch(const std::vector<std::uint64_t>& offsets, std::uint64_t* at, std::uint64_t base) {
  std::transform(offsets.begin(), offsets.end(), at,
                 [base](std::uint64_t offset) { return base + offset; });
}

}  // namespace

RepeatedLaunches::RepeatedLaunches(RepeatedWays ways, RepeatedMemory memory,
                                   std::vector<RepeatedStep> steps, std::vector<std::size_t> result,
                                   bool single)
    : ways_(std::move(ways)),
      device_(static_cast<std::int64_t>(number_of(ways_.device))),
      memory_(std::move(memory)),
      steps_(std::move(steps)),
      result_(std::move(result)),
      single_(single) {
  const std::size_t seen = first_scratch();
  const bool keeps = memory_.kept.zeros != 0;
  const std::size_t all = seen + memory_.scratch.size() + (keeps ? 1 : 0);
  bool fits = all <= kMostTensors && !steps_.empty() && !result_.empty();
  const auto& [id, is_capturing] = ways_.of_stream;
  fits = fits && (keeps ? id != nullptr && is_capturing != nullptr : memory_.kept.scratch == 0);
  for (const std::size_t position : result_) fits = fits && position < seen;
  for (const auto& [a, b] : memory_.apart) {
    fits = fits && std::max(a, b) < memory_.needed.size();
  }
  for (const RepeatedStep& step : steps_) {
    fits = fits && step.parameters.size() <= kMostParameters;
    fits = fits && (!step.cooperative || ways_.launch_cooperative != nullptr);
    fits = fits && step.cluster != 0 && step.grid[0] % step.cluster == 0;
    fits = fits && (step.cluster == 1 || (!step.cooperative && ways_.launch_extended != nullptr));
    for (const auto& [parameter, tensor] : step.addresses) {
      fits = fits && parameter < step.parameters.size() && tensor < all;
    }
    for (const KeptMap& map : step.maps) {
      fits = fits && map.parameter() < step.parameters.size() && map.tensor() < all;
    }
  }
  if (!fits) {
    throw std::invalid_argument("positions that there are not among " + std::to_string(all) +
                                " tensors, or too many of anything");
  }
}

bool RepeatedLaunches::is_ready() const {
  return std::none_of(ways_.hooks.begin(), ways_.hooks.end(),
                      [](const auto& hook) { return has_hooks(hook.first, hook.second); }) &&
         PyLong_AsLongLong(owned(PyObject_CallNoArgs(ways_.current_device.ptr())).ptr()) == device_;
}

bool RepeatedLaunches::is_held(PyObject* const* given, const Addresses& at) const {
  static PyObject* const storage = PyUnicode_InternFromString("untyped_storage");
  static PyObject* const offset = PyUnicode_InternFromString("storage_offset");
  const auto& needed = memory_.needed;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const auto [n_bytes, item] = needed[i];
    const std::uint64_t before = asked_number(given[i], offset) * static_cast<std::uint64_t>(item);
    // Its length, which is its bytes, is asked without making a number of Python's.
    const Py_ssize_t has = PyObject_Size(owned(PyObject_CallMethodNoArgs(given[i], storage)).ptr());
    if (has < 0) throw PythonErrorSet{};
    if (static_cast<std::uint64_t>(has) < before + static_cast<std::uint64_t>(n_bytes)) {
      return false;
    }
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
    for (KeptMap& map : step.maps) {
      parameters[map.parameter()] = map.at(at[map.tensor()], ways_.replace_address);
    }
    const int status = start_kernel(step, stream, parameters.data());
    if (first && (status == kInvalidContext || status == kNotInitialized)) return false;
    if (status != 0) {
      throw CudaError("cuLaunchKernel of an operator returned " + std::to_string(status));
    }
    first = false;
  }
  return true;
}

std::size_t RepeatedLaunches::first_scratch() const {
  return memory_.needed.size() + memory_.made.size() - (scratch_is_made() ? 1 : 0);
}

bool RepeatedLaunches::put_kept(Addresses& at, void* stream) {
  const auto kept = kept_memory(ways_.of_stream, device_, stream, memory_.kept, ways_.zeros);
  if (!kept) return false;
  if (memory_.kept.scratch != 0) {
    put_scratch(memory_.scratch, at.data() + first_scratch(), kept->scratch);
  }
  at[first_scratch() + memory_.scratch.size()] = kept->zeros;
  return true;
}

int RepeatedLaunches::start_kernel(const RepeatedStep& step, void* stream,
                                   void** parameters) const {
  const auto [x, y, z] = step.grid;
  if (step.cluster != 1) {
    LaunchAttribute of_cluster{
        .kind = kClusterDimension, .padding = 0, .value = {step.cluster, 1, 1}};
    const LaunchConfig how{.grid = step.grid,
                           .block = {step.threads, 1, 1},
                           .shared_bytes = step.shared_bytes,
                           .stream = stream,
                           .attributes = &of_cluster,
                           .n_attributes = 1};
    return ways_.launch_extended(&how, step.function, parameters, nullptr);
  }
  if (step.cooperative) {
    return ways_.launch_cooperative(step.function, x, y, z, step.threads, 1, 1, step.shared_bytes,
                                    stream, parameters);
  }
  return ways_.launch(step.function, x, y, z, step.threads, 1, 1, step.shared_bytes, stream,
                      parameters, nullptr);
}

py::object RepeatedLaunches::again(py::handle given, py::handle at) {
  const auto n = static_cast<Py_ssize_t>(memory_.needed.size());
  if (!PyList_CheckExact(given.ptr()) || !PyList_CheckExact(at.ptr()) ||
      PyList_GET_SIZE(given.ptr()) != n || PyList_GET_SIZE(at.ptr()) != n) {
    return py::none();
  }
  Addresses addresses{};
  std::array<PyObject*, kMostTensors> tensors{};
  for (Py_ssize_t i = 0; i < n; ++i) {
    addresses[i] = number_of(PyList_GET_ITEM(at.ptr(), i));
    tensors[i] = PyList_GET_ITEM(given.ptr(), i);
  }
  return start(tensors.data(), memory_.needed.size(), addresses);
}

py::object RepeatedLaunches::start(PyObject* const* given, std::size_t n, Addresses& at) {
  if (n != memory_.needed.size() || !is_ready() || !is_held(given, at)) return py::none();
  std::array<py::object, kMostTensors> made;
  for (std::size_t i = 0; i < memory_.made.size(); ++i) {
    const auto& [size, stride, type] = memory_.made[i];
    made[i] = called(ways_.empty, size, stride, type);
    at[n + i] = ways_.addresses.address_of(made[i]);
  }
  const std::uint64_t number = number_of(called(ways_.stream_of, ways_.device));
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as PyTorch tells it
  void* const stream = reinterpret_cast<void*>(number);
  // What was made of scratch memory is free again once the launches are queued: what comes later on
  // the stream may have it.
  if (scratch_is_made()) {
    put_scratch(memory_.scratch, at.data() + first_scratch(), at[first_scratch()]);
  }
  if (memory_.kept.zeros != 0 && !put_kept(at, stream)) return py::none();
  if (!launch(at, stream)) return py::none();
  const auto returned = [&](std::size_t position) {
    return position < n ? py::reinterpret_borrow<py::object>(given[position]) : made[position - n];
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
