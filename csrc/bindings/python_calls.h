// Calls of Python's C functions that throw PythonErrorSet where Python has an error.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace flash {

// Thrown where Python's error indicator is set and says the rest.
struct PythonErrorSet {};

// Of a call, as Python's C functions get them: the values of the positional ones, then those of the
// names, a tuple or null.
struct NamedArguments {
  PyObject* const* values;
  Py_ssize_t n_positional;
  PyObject* names;

  Py_ssize_t n_named() const { return names == nullptr ? 0 : PyTuple_GET_SIZE(names); }
  PyObject* name(Py_ssize_t i) const { return PyTuple_GET_ITEM(names, i); }
  PyObject* named_value(Py_ssize_t i) const { return values[n_positional + i]; }
};

// What is new, and may be null.
inline pybind11::object owned(PyObject* object) {
  if (object == nullptr) throw PythonErrorSet{};
  return pybind11::reinterpret_steal<pybind11::object>(object);
}

inline bool is_true(pybind11::handle object) {
  if (object.ptr() == Py_True) return true;
  if (object.ptr() == Py_False) return false;
  const int yes = PyObject_IsTrue(object.ptr());
  if (yes < 0) throw PythonErrorSet{};
  return yes != 0;
}

inline bool are_equal(pybind11::handle one, pybind11::handle other) {
  const int equal = PyObject_RichCompareBool(one.ptr(), other.ptr(), Py_EQ);
  if (equal < 0) throw PythonErrorSet{};
  return equal != 0;
}

inline bool says_yes(pybind11::handle function) {
  return is_true(owned(PyObject_CallNoArgs(function.ptr())));
}

// Calls with the arguments, each of them a handle or an object.
template <typename... Arguments>
pybind11::object called(pybind11::handle function, const Arguments&... arguments) {
  PyObject* const given[] = {arguments.ptr()...};
  return owned(PyObject_Vectorcall(function.ptr(), given, sizeof...(arguments), nullptr));
}

inline std::uint64_t number_of(pybind11::handle value) {
  const std::uint64_t number = PyLong_AsUnsignedLongLong(value.ptr());
  if (number == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) {
    throw PythonErrorSet{};
  }
  return number;
}

// What a method without arguments returns.
inline std::uint64_t asked_number(pybind11::handle object, PyObject* name) {
  return number_of(owned(PyObject_CallMethodNoArgs(object.ptr(), name)));
}

// The elements of a tuple of at least that many.
template <std::size_t kCount>
std::array<pybind11::handle, kCount> elements(pybind11::handle tuple) {
  if (!PyTuple_Check(tuple.ptr()) || PyTuple_GET_SIZE(tuple.ptr()) < Py_ssize_t{kCount}) {
    PyErr_Format(PyExc_TypeError, "expected a tuple of %zu", kCount);
    throw PythonErrorSet{};
  }
  std::array<pybind11::handle, kCount> found;
  for (std::size_t i = 0; i < kCount; ++i) found[i] = PyTuple_GET_ITEM(tuple.ptr(), i);
  return found;
}

}  // namespace flash
