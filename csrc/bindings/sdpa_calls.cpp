#include "sdpa_calls.h"

#include <Python.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

namespace py = pybind11;

namespace flash {
namespace {

enum Index { kQ, kK, kV, kO, kLse };  // of the argument record

// PyTorch's parameters. The first ones may be positional.
enum Parameter { kQuery, kKey, kValue, kMask, kDropout, kCausal, kScale, kGrouped, kParameters };
constexpr const char* kNames[] = {"query",     "key",       "value", "attn_mask",
                                  "dropout_p", "is_causal", "scale", "enable_gqa"};
constexpr Py_ssize_t kPositional = kScale;

bool is_zero(py::handle number) {
  return (PyFloat_CheckExact(number.ptr()) || PyLong_CheckExact(number.ptr())) && !is_true(number);
}

}  // namespace

struct SdpaCalls::Operands {
  std::array<py::handle, kParameters> given{};  // null: its default

  // False for what PyTorch would not take.
  bool read(const NamedArguments& arguments) {
    if (arguments.n_positional > kPositional) return false;
    std::copy_n(arguments.values, arguments.n_positional, given.begin());
    for (Py_ssize_t i = 0; i < arguments.n_named(); ++i) {
      const auto* const found =
          std::find_if(std::begin(kNames), std::end(kNames), [&](const char* known) {
            return PyUnicode_CompareWithASCIIString(arguments.name(i), known) == 0;
          });
      if (found == std::end(kNames) || given[found - kNames]) return false;
      given[found - kNames] = arguments.named_value(i);
    }
    return given[kQuery] && given[kKey] && given[kValue];
  }

  // Whether the values are those of a plain call, which the kernels compute.
  bool is_plain() const {
    const auto left_out = [&](Parameter x) { return !given[x] || given[x].is_none(); };
    return left_out(kMask) && (!given[kDropout] || is_zero(given[kDropout])) &&
           (!given[kCausal] || PyBool_Check(given[kCausal].ptr())) &&
           (!given[kScale] || is_usual_scale(given[kScale]));
  }

  std::array<py::handle, 3> tensors() const { return {given[kQuery], given[kKey], given[kValue]}; }
  py::handle scale() const { return given[kScale] ? given[kScale] : py::handle(Py_None); }
  py::handle causal() const { return given[kCausal] ? given[kCausal] : py::handle(Py_False); }
};

SdpaCalls::SdpaCalls(LaunchCache<ForwardCalls>& cache, const Surroundings& around,
                     NewTensors& new_tensors, SdpaWays ways)
    : cache_(cache),
      around_(around),
      new_tensors_(new_tensors),
      ways_(std::move(ways)),
      lse_(ways_.lse_prototype, new_tensors) {}

// Of tensors of the library's own type.
bool SdpaCalls::is_ours(const Operands& call) const {
  const auto tensors = call.tensors();
  return around_.is_quiet() && std::none_of(tensors.begin(), tensors.end(), [&](py::handle x) {
           return is_true(called(around_.is_negated, x));
         });
}

bool SdpaCalls::is_recorded(const Operands& call) const {
  const auto tensors = call.tensors();
  return says_yes(around_.is_grad_enabled) &&
         std::any_of(tensors.begin(), tensors.end(), requires_grad);
}

py::object SdpaCalls::launch(const Operands& call, bool recorded, Query& query) {
  const bool exact = recorded && says_yes(ways_.are_deterministic);
  const py::handle key = !recorded ? ways_.plain
                         : exact   ? ways_.recorded_deterministic
                                   : ways_.recorded;
  if (!cache_.begin(query, key, call.scale(), call.causal())) return py::none();
  const auto [q, k, v] = call.tensors();
  py::object o = new_tensors_.like(q, query.words(kQ), true);
  const py::object lse = recorded ? lse_.empty(py::none(), q, query.words(kQ)) : py::none();
  if (!cache_.add(query, kO, o, true) || !cache_.add(query, kLse, lse) || !cache_.launch(query)) {
    return py::none();
  }
  if (!recorded) return o;
  const py::object options =
      owned(PyTuple_Pack(3, call.scale().ptr(), call.causal().ptr(), exact ? Py_True : Py_False));
  return called(ways_.record, q, k, v,
                owned(PyTuple_Pack(4, o.ptr(), lse.ptr(), options.ptr(), Py_False)));
}

py::object SdpaCalls::attend(const NamedArguments& given) {
  Operands call;
  if (!call.read(given) || !call.is_plain()) return py::none();
  Query query;
  const auto tensors = call.tensors();
  for (int i = kQ; i <= kV; ++i) {
    if (!cache_.add(query, i, tensors[i], true) || query.words(i)[0] != query.words(kQ)[0]) {
      return py::none();
    }
  }
  if (!is_ours(call)) return py::none();
  const py::object backend = owned(
      PyObject_Vectorcall(ways_.backend_of.ptr(), given.values, given.n_positional, given.names));
  if (!are_equal(backend, ways_.flash)) return py::none();
  const bool recorded = is_recorded(call);
  py::object found = launch(call, recorded, query);
  if (!found.is_none()) return found;
  return called(ways_.serve, tensors[kQ], tensors[kK], tensors[kV], call.scale(), call.causal(),
                py::bool_(recorded));
}

}  // namespace flash
