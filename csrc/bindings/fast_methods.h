// Methods that Python calls without pybind11's search for the fitting overload, which takes longer
// than the methods themselves ask and compare.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
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

// `invoke` () -> the result.
template <typename Invoke>
PyObject* guarded(Invoke invoke) {
  try {
    return invoke().release().ptr();
  } catch (const PythonErrorSet&) {
    return nullptr;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

template <auto kMethod, typename T, std::size_t... I>
PyObject* call(PyObject* self, PyObject* const* arguments, std::index_sequence<I...>) {
  return guarded([&] { return (unwrap<T>(self)->*kMethod)(pybind11::handle(arguments[I])...); });
}

inline PyObject* refuse_count(std::size_t expected, Py_ssize_t n) {
  PyErr_Format(PyExc_TypeError, "expected %zu positional arguments, got %zd", expected, n);
  return nullptr;
}

template <auto kMethod, typename Method = decltype(kMethod)>
struct Fast;

template <auto kMethod, typename T, typename... Handles>
struct Fast<kMethod, pybind11::object (T::*)(Handles...)> {
  using Class = T;
  static constexpr int kFlags = METH_FASTCALL;
  static constexpr std::size_t kCount = sizeof...(Handles);

  static PyObject* function(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
    if (n == static_cast<Py_ssize_t>(kCount)) {
      return call<kMethod, T>(self, arguments, std::make_index_sequence<kCount>());
    }
    return refuse_count(kCount, n);
  }
};

// With so many arguments that they have a type of their own: made of an array of handles, with
// their number as kCount.
template <auto kMethod, typename T, typename Arguments>
struct Fast<kMethod, pybind11::object (T::*)(const Arguments&)> {
  using Class = T;
  static constexpr int kFlags = METH_FASTCALL;

  static PyObject* function(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
    if (n != static_cast<Py_ssize_t>(Arguments::kCount)) {
      return refuse_count(Arguments::kCount, n);
    }
    std::array<pybind11::handle, Arguments::kCount> handles;
    std::copy_n(arguments, n, handles.begin());
    return guarded([&] { return (unwrap<T>(self)->*kMethod)(Arguments(handles)); });
  }
};

// With arguments that have names.
template <auto kMethod, typename T>
struct Fast<kMethod, pybind11::object (T::*)(const NamedArguments&)> {
  using Class = T;
  static constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;

  static PyObject* function(PyObject* self, PyObject* const* values, Py_ssize_t n,
                            PyObject* names) {
    return guarded([&] {
      return (unwrap<T>(self)->*kMethod)({.values = values, .n_positional = n, .names = names});
    });
  }
};

// The object whose method a function is that fast_method made; null for any other.
template <auto kMethod>
typename Fast<kMethod>::Class* owner_of(pybind11::handle function) {
  using Class = typename Fast<kMethod>::Class;
  const auto expected =
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Fast<kMethod>::function));
  if (!PyCFunction_CheckExact(function.ptr()) ||
      PyCFunction_GET_FUNCTION(function.ptr()) != expected) {
    return nullptr;
  }
  return unwrap<Class>(PyCFunction_GET_SELF(function.ptr()));
}

inline void release_owner(PyObject* capsule) {
  Py_XDECREF(static_cast<PyObject*>(PyCapsule_GetContext(capsule)));
}

}  // namespace fast

// `owner`, of pybind11's class for the method's, with the method as a function, which keeps the
// owner alive.
template <auto kMethod>
pybind11::object fast_method(const pybind11::object& owner, const char* name) {
  using Fast = fast::Fast<kMethod>;
  using Class = typename Fast::Class;
  static PyMethodDef definition = {
      name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Fast::function)),
      Fast::kFlags, nullptr};
  const pybind11::object self =
      owned(PyCapsule_New(owner.cast<Class*>(), fast::kCapsule, fast::release_owner));
  PyCapsule_SetContext(self.ptr(), owner.inc_ref().ptr());
  return owned(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

}  // namespace flash
