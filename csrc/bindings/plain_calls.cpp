#include "plain_calls.h"

#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

enum Index { kQ, kK, kV, kO, kLse };  // of the argument record

}  // namespace

struct PlainCalls::Operands {
  py::handle q, k, v, softmax_scale, causal;

  bool require_grad() const { return requires_grad(q) || requires_grad(k) || requires_grad(v); }
};

struct PlainCalls::Outputs {
  py::object o, lse;
};

PlainCalls::PlainCalls(LaunchCache<ForwardCalls>& cache, const Surroundings& around,
                       NewTensors& new_tensors, ForwardWays ways)
    : cache_(cache),
      around_(around),
      new_tensors_(new_tensors),
      ways_(std::move(ways)),
      lse_(ways_.lse_prototype, new_tensors) {}

bool PlainCalls::describe(const Operands& given, bool heads_first, Query& query) const {
  return cache_.add(query, kQ, given.q, heads_first) &&
         cache_.add(query, kK, given.k, heads_first) && cache_.add(query, kV, given.v, heads_first);
}

bool PlainCalls::launch(const Operands& given, py::handle key, bool with_lse, bool heads_first,
                        Query& query, Outputs& made) {
  if (!is_usual_scale(given.softmax_scale) ||
      !cache_.begin(query, key, given.softmax_scale, given.causal)) {
    return false;
  }
  for (const py::handle x : {given.q, given.k, given.v}) {
    if (is_true(called(around_.is_negated, x))) return false;
  }
  made.o = new_tensors_.like(given.q, query.words(kQ), heads_first);
  made.lse = with_lse ? lse_.empty(py::none(), given.q, query.words(kQ)) : py::none();
  return cache_.add(query, kO, made.o, heads_first) && cache_.add(query, kLse, made.lse) &&
         cache_.launch(query);
}

py::object PlainCalls::attend(py::handle q, py::handle k, py::handle v, py::handle softmax_scale,
                              py::handle causal, py::handle deterministic, py::handle with_lse) {
  const Operands given{.q = q, .k = k, .v = v, .softmax_scale = softmax_scale, .causal = causal};
  Query query;
  if (!describe(given, false, query) || !around_.is_quiet()) return py::none();
  const bool wants_lse = is_true(with_lse);
  Outputs made;
  if (!says_yes(around_.is_grad_enabled) || !given.require_grad()) {
    if (!launch(given, ways_.plain, wants_lse, false, query, made)) return py::none();
    return wants_lse ? owned(PyTuple_Pack(3, made.o.ptr(), made.lse.ptr(), Py_None)) : made.o;
  }
  const bool exact = is_true(deterministic) || says_yes(ways_.are_deterministic);
  const py::handle key = exact ? ways_.recorded_deterministic : ways_.recorded;
  if (!launch(given, key, true, false, query, made)) return py::none();
  const py::object options =
      owned(PyTuple_Pack(3, softmax_scale.ptr(), causal.ptr(), exact ? Py_True : Py_False));
  const py::object call = owned(
      PyTuple_Pack(4, made.o.ptr(), made.lse.ptr(), options.ptr(), wants_lse ? Py_True : Py_False));
  const py::object found = called(ways_.record, q, k, v, call);
  if (!wants_lse) return found;
  const auto [o, lse] = elements<2>(found);
  return owned(PyTuple_Pack(3, o.ptr(), lse.ptr(), Py_None));
}

py::object PlainCalls::compute(py::handle q, py::handle k, py::handle v, py::handle softmax_scale,
                               py::handle causal, py::handle heads_first) {
  const Operands given{.q = q, .k = k, .v = v, .softmax_scale = softmax_scale, .causal = causal};
  const bool swapped = is_true(heads_first);
  Query query;
  Outputs made;
  if (!describe(given, swapped, query) || !launch(given, ways_.plain, true, swapped, query, made)) {
    return py::none();
  }
  return owned(PyTuple_Pack(2, made.o.ptr(), made.lse.ptr()));
}

}  // namespace flash
