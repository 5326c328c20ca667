#include "recorded_function.h"

#include <utility>

namespace py = pybind11;

namespace flash {
namespace {

// Of PyTorch's contexts: what save_for_backward and set_materialize_grads set, and what they have.
struct Names {
  PyObject* to_save = PyUnicode_InternFromString("to_save");
  PyObject* materialize_grads = PyUnicode_InternFromString("materialize_grads");
  PyObject* saved_tensors = PyUnicode_InternFromString("saved_tensors");
  PyObject* needs_input_grad = PyUnicode_InternFromString("needs_input_grad");
  PyObject* options = PyUnicode_InternFromString("options");  // ours
};

const Names& names() {
  static const Names known;
  return known;
}

void set(py::handle object, PyObject* name, py::handle value) {
  if (PyObject_SetAttr(object.ptr(), name, value.ptr()) != 0) throw PythonErrorSet{};
}

py::object get(py::handle object, PyObject* name) {
  return owned(PyObject_GetAttr(object.ptr(), name));
}

}  // namespace

RecordedFunction::RecordedFunction(py::object gradients, py::object otherwise)
    : gradients_(std::move(gradients)), otherwise_(std::move(otherwise)) {}

py::object RecordedFunction::forward(py::handle context, py::handle q, py::handle k, py::handle v,
                                     py::handle call) {
  const auto [o, lse, options, with_lse] = elements<4>(call);
  set(context, names().to_save,
      owned(PyTuple_Pack(5, q.ptr(), k.ptr(), v.ptr(), o.ptr(), lse.ptr())));
  set(context, names().materialize_grads, Py_False);
  set(context, names().options, options);
  if (is_true(with_lse)) return owned(PyTuple_Pack(2, o.ptr(), lse.ptr()));
  return py::reinterpret_borrow<py::object>(o);
}

py::object RecordedFunction::backward(const NamedArguments& given) {
  if (given.n_positional < 2 || given.n_positional > 3 || given.n_named() != 0) {
    PyErr_Format(PyExc_TypeError, "expected 2 or 3 positional arguments, got %zd",
                 given.n_positional + given.n_named());
    throw PythonErrorSet{};
  }
  const py::handle context = given.values[0], d_o = given.values[1];
  const py::handle d_lse = given.n_positional == 3 ? given.values[2] : Py_None;
  const py::object saved = get(context, names().saved_tensors);  // once: hooks may count
  py::object found = called(gradients_, d_o, d_lse, saved, get(context, names().options),
                            get(context, names().needs_input_grad));
  return found.is_none() ? called(otherwise_, context, d_o, d_lse, saved) : found;
}

}  // namespace flash
