// The Python module flash_attention._C: raw pointers, strides and a stream; no torch.
//
// launch() takes the argument record as bytes that Python packed
// (flash_helpers.kernels.forward_args): one conversion instead of 23. The interpreter lock is kept:
// a launch returns in about two microseconds, and releasing and taking the lock would cost a tenth
// of that and let threads reorder their launches.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backward_launcher.h"
#include "build_info.h"
#include "configurations.h"
#include "flash/core/args.h"
#include "flash/core/backward_args.h"
#include "flash/core/error.h"
#include "flash/core/registry.h"
#include "flash/core/serve_args.h"
#include "launch_cache.h"
#include "launcher.h"
#include "loaded_kernels.h"
#include "python_calls.h"
#include "records.h"
#include "serve_launcher.h"
#include "short_ways.h"

namespace py = pybind11;

namespace {

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const flash::Configuration& found : flash::configurations()) {
    names.emplace_back(found.front().configuration);
  }
  return names;
}

std::vector<std::string> variants(std::size_t kernel_id) {
  std::vector<std::string> names;
  for (const flash::KernelEntry& entry : flash::configuration_of(kernel_id)) {
    names.emplace_back(flash::name_of(entry.variant));
  }
  return names;
}

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  const std::string all = flash::build_info::kArchitectures;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size());
    names.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

void launch(std::size_t kernel_id, const py::bytes& args, int device, std::uintptr_t stream) {
  flash::launch(kernel_id, flash::record_of<flash::ForwardArgs>(args, "ForwardArgs"), device,
                reinterpret_cast<cudaStream_t>(stream));
}

void launch_backward(std::size_t kernel_id, const py::bytes& args, int device,
                     std::uintptr_t stream) {
  flash::launch_backward(kernel_id, flash::record_of<flash::BackwardArgs>(args, "BackwardArgs"),
                         device, reinterpret_cast<cudaStream_t>(stream));
}

void launch_serving(std::size_t kernel_id, const py::bytes& args, int device,
                    std::uintptr_t stream) {
  flash::launch_serving(kernel_id, flash::record_of<flash::ServeArgs>(args, "ServeArgs"), device,
                        reinterpret_cast<cudaStream_t>(stream));
}

// `kernels`: (variant, symbol, cubin).
std::size_t load_kernels(
    const std::string& family, const std::string& name, const py::bytes& config,
    const std::vector<std::tuple<std::string, std::string, py::bytes>>& kernels) {
  std::vector<flash::MachineCode> code;
  for (const auto& [variant, symbol, cubin] : kernels) {
    code.push_back({.variant = flash::variant_of(variant), .symbol = symbol, .cubin = cubin});
  }
  return flash::load_kernels(family, name, std::string(config), code);
}

py::dict kernel_attributes(std::size_t kernel_id, int device, const std::string& variant) {
  const flash::KernelAttributes found =
      flash::kernel_attributes(kernel_id, device, flash::variant_of(variant));
  py::dict result;
  result["registers"] = found.registers;
  result["static_shared_bytes"] = found.static_shared_bytes;
  result["dynamic_shared_bytes"] = found.dynamic_shared_bytes;
  result["local_bytes"] = found.local_bytes;
  result["max_threads_per_block"] = found.max_threads_per_block;
  result["blocks_per_multiprocessor"] = found.blocks_per_multiprocessor;
  result["binary_version"] = found.binary_version;
  result["ptx_version"] = found.ptx_version;
  return result;
}

template <std::size_t>
using Object = py::handle;

// Every tensor is an argument by itself.
template <typename Calls, std::size_t... I>
void def_launch_cache(py::module_& module, const char* name, std::index_sequence<I...>) {
  using Cache = flash::LaunchCache<Calls>;
  py::class_<Cache>(module, name, "Launches calls like those that were checked before.")
      .def(py::init<py::object, py::capsule>(), py::arg("tensor_type"), py::arg("exchange_api"))
      .def("again",
           [](Cache& cache, py::handle config, Object<I>... objects, py::handle softmax_scale,
              py::handle causal, bool grad_enabled) {
             return cache.again(config, {objects...}, softmax_scale, causal, grad_enabled);
           })
      .def("remember",
           [](Cache& cache, py::object config, Object<I>... objects, py::handle softmax_scale,
              py::handle causal, std::size_t kernel_id, const py::bytes& args) {
             cache.remember(std::move(config), {objects...}, softmax_scale, causal, kernel_id,
                            args);
           })
      .def("clear", &Cache::clear)
      .def("__len__", &Cache::size);
}

template <typename Calls>
void def_launch_cache(py::module_& module, const char* name) {
  def_launch_cache<Calls>(module, name, std::make_index_sequence<Calls::kTensors>());
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() =
      "Compiled FlashAttention kernels, by the id of their configuration: the index into "
      "kernel_names().";
  py::register_exception<flash::CudaError>(module, "CudaError", PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const flash::PythonErrorSet&) {
      // Python has the error already.
    }
  });

  module.def("kernel_names", &kernel_names,
             "Names of the configurations; the index is the id. Sorted, then those that were "
             "loaded since.");
  module.def("kernel_set", [] { return flash::build_info::kKernelSet; }, "KERNELS of the build.");
  module.def("architectures", &architectures, "What the kernels were compiled for.");
  module.def(
      "fingerprint", [] { return flash::build_info::kFingerprint; },
      "Hash of sources, configurations, compilers and flags.");
  module.def(
      "forward_args_size", [] { return sizeof(flash::ForwardArgs); },
      "Bytes that launch() expects.");
  module.def("launch", &launch, py::arg("kernel_id"), py::arg("args"), py::arg("device"),
             py::arg("stream"), "Queue a kernel on a stream of a device; does not wait.");
  module.def(
      "backward_args_size", [] { return sizeof(flash::BackwardArgs); },
      "Bytes that launch_backward() expects.");
  module.def("launch_backward", &launch_backward, py::arg("kernel_id"), py::arg("args"),
             py::arg("device"), py::arg("stream"),
             "Queue the kernels of a backward pass on a stream of a device; does not wait.");
  module.def(
      "serve_args_size", [] { return sizeof(flash::ServeArgs); },
      "Bytes that launch_serving() expects.");
  module.def("launch_serving", &launch_serving, py::arg("kernel_id"), py::arg("args"),
             py::arg("device"), py::arg("stream"),
             "Queue the kernels of a serving call on a stream of a device; does not wait.");
  module.def("load_kernels", &load_kernels, py::arg("family"), py::arg("name"), py::arg("config"),
             py::arg("kernels"),
             "Add a configuration whose kernels were compiled since the build; returns its id.");
  module.def("variants", &variants, py::arg("kernel_id"),
             "Which kernels of the configuration this build has: whole, any, dots, keys, queries, "
             "round, serve, combine.");
  module.def("kernel_attributes", &kernel_attributes, py::arg("kernel_id"), py::arg("device"),
             py::arg("variant"),
             "Registers, memory and occupancy of a configuration's kernel on a device.");
  def_launch_cache<flash::ForwardCalls>(module, "LaunchCache");
  def_launch_cache<flash::BackwardCalls>(module, "BackwardLaunchCache");
  flash::def_short_ways(module);
  module.def("device_count", &flash::device_count, "CUDA devices; 0 without a driver.");
}
