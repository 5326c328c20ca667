#include "short_ways.h"

#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "detour.h"
#include "fast_methods.h"
#include "new_tensors.h"
#include "plain_calls.h"
#include "plain_gradients.h"
#include "recorded_function.h"
#include "records.h"
#include "remembered_calls.h"
#include "repeated_launches.h"
#include "sdpa_calls.h"
#include "serving_calls.h"
#include "surroundings.h"

namespace py = pybind11;

namespace flash {
namespace {

thread_local std::exception_ptr thrown;

// `settings`: (variables of a module, name, its value while nothing is going on).
std::unique_ptr<Surroundings> surroundings(
    std::vector<py::object> quiet,
    const std::vector<std::tuple<py::dict, py::str, py::object>>& settings,
    py::object is_grad_enabled, py::object is_negated) {
  auto around =
      std::make_unique<Surroundings>(Surroundings{.quiet = std::move(quiet),
                                                  .settings = {},
                                                  .is_grad_enabled = std::move(is_grad_enabled),
                                                  .is_negated = std::move(is_negated)});
  for (const auto& [variables, name, value] : settings) {
    around->settings.push_back({.variables = variables, .name = name, .quiet = value});
  }
  return around;
}

std::unique_ptr<NewTensors> new_tensors_of(py::object empty_like, py::object new_empty,
                                           py::object empty_strided, py::object description_of,
                                           py::object current_device) {
  return std::make_unique<NewTensors>(NewTensorWays{.empty_like = std::move(empty_like),
                                                    .new_empty = std::move(new_empty),
                                                    .empty_strided = std::move(empty_strided),
                                                    .description_of = std::move(description_of),
                                                    .current_device = std::move(current_device)});
}

std::unique_ptr<PlainCalls> plain_calls(LaunchCache<ForwardCalls>& cache,
                                        const Surroundings& around, NewTensors& new_tensors,
                                        py::object plain, py::object recorded,
                                        py::object recorded_deterministic,
                                        py::object are_deterministic, py::object lse_prototype,
                                        py::object record) {
  return std::make_unique<PlainCalls>(
      cache, around, new_tensors,
      ForwardWays{.plain = std::move(plain),
                  .recorded = std::move(recorded),
                  .recorded_deterministic = std::move(recorded_deterministic),
                  .are_deterministic = std::move(are_deterministic),
                  .lse_prototype = std::move(lse_prototype),
                  .record = std::move(record)});
}

std::unique_ptr<PlainGradients> plain_gradients(LaunchCache<BackwardCalls>& cache,
                                                const Surroundings& around, NewTensors& new_tensors,
                                                py::object choose, py::object row_stats_prototype,
                                                py::object d_q_sums_prototype) {
  return std::make_unique<PlainGradients>(
      cache, around, new_tensors,
      BackwardWays{.choose = std::move(choose),
                   .row_stats_prototype = std::move(row_stats_prototype),
                   .d_q_sums_prototype = std::move(d_q_sums_prototype)});
}

std::unique_ptr<SdpaCalls> sdpa_calls(LaunchCache<ForwardCalls>& cache, const Surroundings& around,
                                      NewTensors& new_tensors, py::object plain,
                                      py::object recorded, py::object recorded_deterministic,
                                      py::object are_deterministic, py::object lse_prototype,
                                      py::object record, py::object backend_of, py::object flash,
                                      py::object serve) {
  return std::make_unique<SdpaCalls>(
      cache, around, new_tensors,
      SdpaWays{.plain = std::move(plain),
               .recorded = std::move(recorded),
               .recorded_deterministic = std::move(recorded_deterministic),
               .are_deterministic = std::move(are_deterministic),
               .lse_prototype = std::move(lse_prototype),
               .record = std::move(record),
               .backend_of = std::move(backend_of),
               .flash = std::move(flash),
               .serve = std::move(serve)});
}

std::unique_ptr<ServingCalls> serving_calls(py::object tensor_type, py::capsule exchange_api,
                                            const Surroundings& around,
                                            const NewTensors& new_tensors, py::object float32,
                                            py::object parameter, py::object read_sinks,
                                            std::int64_t most_rows, std::int64_t many_heads,
                                            std::int64_t pair_heads, std::int64_t few_heads,
                                            std::int64_t cut_heads, std::int64_t few_keys,
                                            std::int64_t most_units) {
  return std::make_unique<ServingCalls>(
      std::move(tensor_type), std::move(exchange_api), around, new_tensors,
      ServingWays{.float32 = std::move(float32),
                  .parameter = std::move(parameter),
                  .read_sinks = std::move(read_sinks),
                  .telling = {most_rows, many_heads, pair_heads, few_heads, cut_heads, few_keys,
                              most_units}});
}

void remember_serving(ServingCalls& calls, const py::tuple& given, std::size_t kernel_id,
                      const py::bytes& args, ServingCalls::Scratch scratch, bool keeps_scratch,
                      bool by_sizes) {
  calls.remember(ServingArguments(elements<ServingArguments::kCount>(given)), kernel_id,
                 record_of<ServeArgs>(args, "ServeArgs"), std::move(scratch), keeps_scratch,
                 by_sizes);
}

std::unique_ptr<RememberedCalls> remembered_calls(std::vector<py::object> quiet, py::object levels,
                                                  py::object is_grad_enabled,
                                                  std::vector<py::object> tensors,
                                                  std::vector<py::object> others,
                                                  py::object exchange_api) {
  return std::make_unique<RememberedCalls>(
      RememberedWays{.quiet = std::move(quiet),
                     .levels = std::move(levels),
                     .is_grad_enabled = std::move(is_grad_enabled),
                     .tensors = std::move(tensors),
                     .others = std::move(others),
                     .addresses = TensorAddresses(std::move(exchange_api))});
}

// (parameter, tensor, the map, of which address), as KeptMap.
using Map = std::tuple<std::size_t, std::size_t, py::bytes, std::uint64_t>;
using Step = std::tuple<std::uintptr_t, std::array<unsigned, 3>, unsigned, unsigned, bool, unsigned,
                        std::vector<std::uint64_t>,
                        std::vector<std::pair<std::size_t, std::size_t>>, std::vector<Map>>;
using Driver = std::array<std::uintptr_t, 6>;  // functions, in the order of machine.py

std::vector<KeptMap> kept_maps(const std::vector<Map>& maps, ReplaceAddress replace) {
  std::vector<KeptMap> kept;
  for (const auto& [parameter, tensor, bytes, address] : maps) {
    const auto map = record_of<KeptMap::Bytes>(bytes, "CUtensorMap");
    kept.emplace_back(parameter, tensor, map, address, replace);
  }
  return kept;
}

std::unique_ptr<RepeatedLaunches> repeated_launches(
    const Driver& driver, py::object exchange_api,
    std::vector<std::pair<py::object, py::object>> hooks, py::object current_device,
    py::object stream_of, py::object empty, py::object zeros, py::object device,
    std::vector<std::pair<std::int64_t, std::int64_t>> needed,
    std::vector<std::pair<std::size_t, std::size_t>> apart, std::vector<RepeatedMemory::Kind> made,
    std::vector<std::uint64_t> scratch, std::pair<std::uint64_t, std::uint64_t> kept,
    const std::vector<Step>& steps, std::vector<std::size_t> result, bool single) {
  const auto [launch, together, extended, replacer, stream_id, is_capturing] = driver;
  auto* const replace = reinterpret_cast<ReplaceAddress>(replacer);
  std::vector<RepeatedStep> launches;
  for (const auto& [function, grid, threads, shared, coop, cluster, parameters, at, maps] : steps) {
    launches.push_back({.function = reinterpret_cast<void*>(function),
                        .grid = grid,
                        .threads = threads,
                        .shared_bytes = shared,
                        .cooperative = coop,
                        .cluster = cluster,
                        .parameters = parameters,
                        .addresses = at,
                        .maps = kept_maps(maps, replace)});
  }
  return std::make_unique<RepeatedLaunches>(
      RepeatedWays{.launch = reinterpret_cast<LaunchKernel>(launch),
                   .launch_cooperative = reinterpret_cast<LaunchCooperative>(together),
                   .launch_extended = reinterpret_cast<LaunchExtended>(extended),
                   .replace_address = replace,
                   .of_stream = {reinterpret_cast<StreamId>(stream_id),
                                 reinterpret_cast<StreamIsCapturing>(is_capturing)},
                   .hooks = std::move(hooks),
                   .current_device = std::move(current_device),
                   .stream_of = std::move(stream_of),
                   .empty = std::move(empty),
                   .zeros = std::move(zeros),
                   .device = std::move(device),
                   .addresses = TensorAddresses(std::move(exchange_api))},
      RepeatedMemory{.needed = std::move(needed),
                     .apart = std::move(apart),
                     .made = std::move(made),
                     .scratch = std::move(scratch),
                     .kept = {.zeros = kept.first, .scratch = kept.second}},
      std::move(launches), std::move(result), single);
}

// A method as a function that is made when it is asked for.
template <auto kMethod>
auto function_of(const char* name) {
  return [name](const py::object& self) { return fast_method<kMethod>(self, name); };
}

// The same as a member of a class: what it is asked of comes before the other arguments.
template <auto kMethod>
auto method_of(const char* name) {
  return [name](const py::object& self) {
    return owned(PyInstanceMethod_New(fast_method<kMethod>(self, name).ptr()));
  };
}

}  // namespace

void set_python_error() {
  thrown = std::current_exception();
  const auto again = [] { std::rethrow_exception(std::exchange(thrown, nullptr)); };
  static PyObject* const rethrow = py::cpp_function(again).release().ptr();
  Py_XDECREF(PyObject_CallNoArgs(rethrow));
}

void def_short_ways(py::module_& module) {
  py::class_<Surroundings>(module, "Surroundings", "What is going on in PyTorch around a call.")
      .def(py::init(&surroundings), py::arg("quiet"), py::arg("settings"),
           py::arg("is_grad_enabled"), py::arg("is_negated"))
      .def("is_quiet", &Surroundings::is_quiet);
  py::class_<NewTensors>(module, "NewTensors", "Makes tensors.")
      .def(py::init(&new_tensors_of), py::arg("empty_like"), py::arg("new_empty"),
           py::arg("empty_strided"), py::arg("description_of"), py::arg("current_device"));
  py::class_<PlainCalls>(module, "PlainCalls", "Forward passes like those that were remembered.")
      .def(py::init(&plain_calls), py::arg("cache"), py::arg("around"), py::arg("new_tensors"),
           py::arg("plain"), py::arg("recorded"), py::arg("recorded_deterministic"),
           py::arg("are_deterministic"), py::arg("lse_prototype"), py::arg("record"),
           py::keep_alive<1, 2>(), py::keep_alive<1, 3>(), py::keep_alive<1, 4>())
      .def_property_readonly("attend", function_of<&PlainCalls::attend>("attend"))
      .def_property_readonly("compute", function_of<&PlainCalls::compute>("compute"));
  py::class_<PlainGradients>(module, "PlainGradients",
                             "Backward passes like those that were remembered.")
      .def(py::init(&plain_gradients), py::arg("cache"), py::arg("around"), py::arg("new_tensors"),
           py::arg("choose"), py::arg("row_stats_prototype"), py::arg("d_q_sums_prototype"),
           py::keep_alive<1, 2>(), py::keep_alive<1, 3>(), py::keep_alive<1, 4>())
      .def_property_readonly("attend", function_of<&PlainGradients::attend>("attend"))
      .def_property_readonly("attend_heads_first",
                             function_of<&PlainGradients::attend_heads_first>("attend_heads_first"))
      .def_property_readonly("compute", function_of<&PlainGradients::compute>("compute"));
  py::class_<RecordedFunction>(module, "RecordedFunction",
                               "The two passes of a torch.autograd.Function.")
      .def(py::init<py::object, py::object>(), py::arg("gradients"), py::arg("otherwise"))
      .def_property_readonly("forward", function_of<&RecordedFunction::forward>("forward"))
      .def_property_readonly("apply", method_of<&RecordedFunction::backward>("apply"));
  py::class_<SdpaCalls>(module, "SdpaCalls",
                        "Calls of PyTorch's scaled_dot_product_attention like those that were "
                        "remembered.")
      .def(py::init(&sdpa_calls), py::arg("cache"), py::arg("around"), py::arg("new_tensors"),
           py::arg("plain"), py::arg("recorded"), py::arg("recorded_deterministic"),
           py::arg("are_deterministic"), py::arg("lse_prototype"), py::arg("record"),
           py::arg("backend_of"), py::arg("flash"), py::arg("serve"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>(), py::keep_alive<1, 4>())
      .def_property_readonly("attend", function_of<&SdpaCalls::attend>("attend"));
  py::class_<Detour>(module, "Detour", "Calls of a C function that go to another first.")
      .def(py::init<py::object, py::object>(), py::arg("function"), py::arg("first"))
      .def("end", &Detour::end);
  py::class_<ServingCalls>(module, "ServingCalls", "Serving calls like those that were remembered.")
      .def(py::init(&serving_calls), py::arg("tensor_type"), py::arg("exchange_api"),
           py::arg("around"), py::arg("new_tensors"), py::arg("float32"), py::arg("parameter"),
           py::arg("read_sinks"), py::arg("most_rows"), py::arg("many_heads"),
           py::arg("pair_heads"), py::arg("few_heads"), py::arg("cut_heads"), py::arg("few_keys"),
           py::arg("most_units"), py::keep_alive<1, 4>(), py::keep_alive<1, 5>())
      .def_property_readonly("attend", function_of<&ServingCalls::attend>("attend"))
      .def("remember", &remember_serving, py::arg("given"), py::arg("kernel_id"), py::arg("args"),
           py::arg("scratch"), py::arg("keeps_scratch"), py::arg("by_sizes"))
      .def("__len__", &ServingCalls::size);
  py::class_<RepeatedLaunches>(module, "RepeatedLaunches",
                               "An operator's launches, for other tensors of the same kind.")
      .def(py::init(&repeated_launches), py::arg("driver"), py::arg("exchange_api"),
           py::arg("hooks"), py::arg("current_device"), py::arg("stream_of"), py::arg("empty"),
           py::arg("zeros"), py::arg("device"), py::arg("needed"), py::arg("apart"),
           py::arg("made"), py::arg("scratch"), py::arg("kept"), py::arg("steps"),
           py::arg("result"), py::arg("single"))
      .def_property_readonly("again", function_of<&RepeatedLaunches::again>("again"));
  py::class_<RememberedCalls>(module, "RememberedCalls", "Calls of an operator that are repeated.")
      .def(py::init(&remembered_calls), py::arg("quiet"), py::arg("levels"),
           py::arg("is_grad_enabled"), py::arg("tensors"), py::arg("others"),
           py::arg("exchange_api"))
      .def_property_readonly("again", function_of<&RememberedCalls::again>("again"))
      .def("remember", &RememberedCalls::remember, py::arg("given"), py::arg("named"),
           py::arg("like"), py::arg("launches"))
      .def("__len__", &RememberedCalls::size);
}

}  // namespace flash
