#include "detour.h"

#include <Python.h>

#include <cstddef>
#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

PyObject* offered = nullptr;  // while there is a detour

vectorcallfunc& entry_of(const py::object& function) {
  return reinterpret_cast<PyCFunctionObject*>(function.ptr())->vectorcall;
}

// As Python calls a function without an entry.
PyObject* run_own(PyObject* function, const NamedArguments& given) {
  const py::object positional = owned(PyTuple_New(given.n_positional));
  for (Py_ssize_t i = 0; i < given.n_positional; ++i) {
    PyTuple_SET_ITEM(positional.ptr(), i, Py_NewRef(given.values[i]));
  }
  const Py_ssize_t n_named = given.n_named();
  const py::object named = n_named > 0 ? owned(PyDict_New()) : py::object();
  for (Py_ssize_t i = 0; i < n_named; ++i) {
    if (PyDict_SetItem(named.ptr(), given.name(i), given.named_value(i)) != 0) return nullptr;
  }
  return Py_TYPE(function)->tp_call(function, positional.ptr(), named.ptr());
}

PyObject* run(PyObject* function, PyObject* const* values, std::size_t n, PyObject* names) {
  const NamedArguments given{
      .values = values, .n_positional = PyVectorcall_NARGS(n), .names = names};
  if (offered != nullptr) {
    PyObject* const first = Py_NewRef(offered);  // which another thread may take away meanwhile
    PyObject* const found = PyObject_Vectorcall(first, values, given.n_positional, names);
    Py_DECREF(first);
    if (found != Py_None) return found;
    Py_DECREF(found);
  }
  try {
    return run_own(function, given);
  } catch (const PythonErrorSet&) {
    return nullptr;
  }
}

[[noreturn]] void refuse(PyObject* kind, const char* words) {
  PyErr_SetString(kind, words);
  throw PythonErrorSet{};
}

}  // namespace

Detour::Detour(py::object function, py::object first) {
  if (!PyCFunction_CheckExact(function.ptr()) ||
      PyCFunction_GET_FLAGS(function.ptr()) != (METH_VARARGS | METH_KEYWORDS)) {
    refuse(PyExc_TypeError, "expected a function of C that takes a tuple and a dictionary");
  }
  if (entry_of(function) != nullptr || offered != nullptr) {
    refuse(PyExc_RuntimeError, "there is a detour already: end it first");
  }
  offered = first.release().ptr();
  entry_of(function) = run;
  function_ = std::move(function);
}

void Detour::end() {
  if (!function_) return;
  entry_of(function_) = nullptr;
  function_ = {};
  Py_CLEAR(offered);
}

}  // namespace flash
