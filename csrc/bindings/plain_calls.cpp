#include "plain_calls.h"

#include <utility>

namespace py = pybind11;

namespace flash {
namespace {

py::object owned(PyObject* object) {
  if (object == nullptr) throw PythonErrorSet{};
  return py::reinterpret_steal<py::object>(object);
}

bool is_true(py::handle object) {
  const int yes = PyObject_IsTrue(object.ptr());
  if (yes < 0) throw PythonErrorSet{};
  return yes != 0;
}

bool says_yes(const py::object& function) {
  return is_true(owned(PyObject_CallNoArgs(function.ptr())));
}

// A view with the other sign, which memory does not show.
bool is_negated(py::handle tensor) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  return is_true(owned(PyObject_CallMethodNoArgs(tensor.ptr(), name)));
}

// A variable that PyTorch does not have in this release is quiet.
bool is_quiet_setting(const Setting& setting) {
  PyObject* const value =
      PyDict_GetItemWithError(setting.variables.ptr(), setting.name.ptr());  // borrowed
  if (value == nullptr) {
    if (PyErr_Occurred() != nullptr) throw PythonErrorSet{};
    return true;
  }
  const int equal = PyObject_RichCompareBool(value, setting.quiet.ptr(), Py_EQ);
  if (equal < 0) throw PythonErrorSet{};
  return equal != 0;
}

// Of negative and zero scales the queries, or the scale, are changed first.
bool is_usual_scale(py::handle scale) {
  return scale.is_none() || (PyFloat_CheckExact(scale.ptr()) && PyFloat_AS_DOUBLE(scale.ptr()) > 0);
}

}  // namespace

PlainCalls::PlainCalls(LaunchCache<ForwardCalls>& cache, py::object key, Surroundings surroundings)
    : cache_(cache), key_(std::move(key)), around_(std::move(surroundings)) {}

bool PlainCalls::is_quiet() const {
  for (const py::object& function : around_.quiet) {
    if (says_yes(function)) return false;
  }
  for (const Setting& setting : around_.settings) {
    if (!is_quiet_setting(setting)) return false;
  }
  return true;
}

py::object PlainCalls::attend(py::handle q, py::handle k, py::handle v, py::handle softmax_scale,
                              py::handle causal, bool with_lse) const {
  if (!cache_.is_tensor(q) || !cache_.is_tensor(k) || !cache_.is_tensor(v) ||
      !is_usual_scale(softmax_scale) || !is_quiet()) {
    return py::none();
  }
  if (says_yes(around_.is_grad_enabled) &&
      (requires_grad(q) || requires_grad(k) || requires_grad(v))) {
    return py::none();
  }
  if (is_negated(q) || is_negated(k) || is_negated(v)) return py::none();
  const py::object o = owned(PyObject_CallOneArg(around_.empty_like.ptr(), q.ptr()));
  const py::object lse =
      with_lse ? owned(PyObject_CallOneArg(around_.lse_like.ptr(), q.ptr())) : py::none();
  if (!cache_.again(key_, {q, k, v, o, lse}, softmax_scale, causal, /*grad_enabled=*/false)) {
    return py::none();
  }
  return with_lse ? owned(PyTuple_Pack(3, o.ptr(), lse.ptr(), Py_None)) : o;
}

}  // namespace flash
