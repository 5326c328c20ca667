// Methods that Python calls without pybind11's search for the fitting overload, which takes longer
// than the methods themselves ask and compare.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <utility>

#include "python_calls.h"

namespace flash {

// Sets Python's error for the exception that is being handled, as pybind11 does.
void set_python_error();

namespace fast {

constexpr const char* kCapsule = "flash_attention._C method";

template <typename T>
T* unwrap(PyObject* self) {
  return static_cast<T*>(PyCapsule_GetPointer(self, kCapsule));
}

template <auto kMethod, typename T, std::size_t... I>
PyObject* call(PyObject* self, PyObject* const* arguments, std::index_sequence<I...>) {
  try {
    return (unwrap<T>(self)->*kMethod)(pybind11::handle(arguments[I])...).release().ptr();
  } catch (const PythonErrorSet&) {
    return nullptr;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

template <auto kMethod, typename Method = decltype(kMethod)>
struct Fast;

template <auto kMethod, typename T, typename... Handles>
struct Fast<kMethod, pybind11::object (T::*)(Handles...)> {
  using Class = T;
  static constexpr std::size_t kCount = sizeof...(Handles);

  static PyObject* function(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
    if (n == static_cast<Py_ssize_t>(kCount)) {
      return call<kMethod, T>(self, arguments, std::make_index_sequence<kCount>());
    }
    PyErr_Format(PyExc_TypeError, "expected %zu positional arguments, got %zd", kCount, n);
    return nullptr;
  }
};

inline void release_owner(PyObject* capsule) {
  Py_XDECREF(static_cast<PyObject*>(PyCapsule_GetContext(capsule)));
}

}  // namespace fast

// `owner`, of pybind11's class for the method's, with the method as a function of positional
// arguments, which keeps the owner alive.
template <auto kMethod>
pybind11::object fast_method(const pybind11::object& owner, const char* name) {
  using Fast = fast::Fast<kMethod>;
  using Class = typename Fast::Class;
  static PyMethodDef definition = {
      name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Fast::function)),
      METH_FASTCALL, nullptr};
  const pybind11::object self =
      owned(PyCapsule_New(owner.cast<Class*>(), fast::kCapsule, fast::release_owner));
  PyCapsule_SetContext(self.ptr(), owner.inc_ref().ptr());
  return owned(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

}  // namespace flash
