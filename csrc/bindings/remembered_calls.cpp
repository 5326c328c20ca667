#include "remembered_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fast_methods.h"
#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

constexpr std::size_t kMostArguments = 24;
constexpr std::uint64_t kAlignment = 16;

bool is_one_of(const std::vector<py::object>& types, py::handle type) {
  return std::any_of(types.begin(), types.end(), [&](const auto& one) { return one.is(type); });
}

py::handle type_of(py::handle object) { return reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())); }

// Of one type. 0.0 equals -0.0, and NaN not itself.
bool is_same(py::handle a, py::handle b) {
  if (a.is(b)) return true;
  if (PyFloat_CheckExact(a.ptr()) && PyFloat_AS_DOUBLE(a.ptr()) == 0) return false;
  const int equal = PyObject_RichCompareBool(a.ptr(), b.ptr(), Py_EQ);
  if (equal < 0) throw PythonErrorSet{};
  return equal != 0;
}

// Of what is asked while nobody has to see calls.
bool says_nothing(const py::object& quiet) {
  PyObject* value = nullptr;
  if (PyContextVar_CheckExact(quiet.ptr())) {
    if (PyContextVar_Get(quiet.ptr(), Py_None, &value) != 0) throw PythonErrorSet{};
  } else {
    value = PyObject_CallNoArgs(quiet.ptr());
  }
  const py::object found = owned(value);
  return found.is_none() || (PyLong_Check(found.ptr()) && !is_true(found));
}

}  // namespace

struct RememberedCalls::Arguments {
  std::array<py::handle, kMostArguments> values;
  std::array<py::handle, kMostArguments> names;
  std::size_t n = 0;
  std::size_t n_positional = 0;
  std::array<PyObject*, kMostArguments> tensors;
  std::size_t n_tensors = 0;
  RepeatedLaunches::Addresses at;  // of the tensors
  std::array<Place, kMostArguments> places;
  std::array<PyObject*, kMostArguments> distinct;
  std::size_t n_distinct = 0;
  std::uint64_t key = 0;
};

RememberedCalls::RememberedCalls(RememberedWays ways) : ways_(std::move(ways)) {}

bool RememberedCalls::read(py::handle given, py::handle named, Arguments& found) const {
  if (!PyTuple_CheckExact(given.ptr()) || !PyDict_CheckExact(named.ptr())) return false;
  found.n_positional = static_cast<std::size_t>(PyTuple_GET_SIZE(given.ptr()));
  found.n = found.n_positional + static_cast<std::size_t>(PyDict_GET_SIZE(named.ptr()));
  if (found.n > kMostArguments) return false;
  std::size_t i = 0;
  for (; i < found.n_positional; ++i) {
    found.values[i] = PyTuple_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
  }
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t at = 0; i < found.n && PyDict_Next(named.ptr(), &at, &name, &value) != 0; ++i) {
    found.names[i] = name;
    found.values[i] = value;
  }
  for (i = 0; i < found.n; ++i) {
    if (is_one_of(ways_.tensors, type_of(found.values[i]))) {
      found.tensors[found.n_tensors++] = found.values[i].ptr();
    } else if (!is_one_of(ways_.others, type_of(found.values[i]))) {
      return false;
    }
  }
  if (found.n_tensors == 0) return false;
  std::uint64_t numel = 0;
  for (i = 0; i < found.n_tensors; ++i) {
    const auto [address, count] = ways_.addresses.of(found.tensors[i]);
    found.at[i] = address;
    if (i == 0) numel = count;
  }
  place(found);
  found.key = numel * (kMostArguments + 1) + found.n;
  return true;
}

void RememberedCalls::place(Arguments& arguments) {
  const auto first = [](const auto& all, std::size_t i) {
    const auto found = std::find(all.begin(), all.begin() + i, all[i]);
    return static_cast<std::uint8_t>(found - all.begin());
  };
  for (std::size_t i = 0; i < arguments.n_tensors; ++i) {
    const std::uint8_t same = first(arguments.tensors, i);
    arguments.places[i] = {.beyond = static_cast<std::uint8_t>(arguments.at[i] % kAlignment),
                           .address = first(arguments.at, i),
                           .tensor = same};
    if (same == i) arguments.distinct[arguments.n_distinct++] = arguments.tensors[i];
  }
}

bool RememberedCalls::is_quiet() const {
  static PyObject* const level = PyUnicode_InternFromString("_current_level");
  if (!std::all_of(ways_.quiet.begin(), ways_.quiet.end(), says_nothing)) return false;
  const py::object now = owned(PyObject_GetAttr(ways_.levels.ptr(), level));
  return PyLong_AsLong(now.ptr()) < 0 && PyErr_Occurred() == nullptr;
}

bool RememberedCalls::matches(const Call& call, const Arguments& arguments) {
  if (call.values.size() != arguments.n ||
      !std::equal(call.places.begin(), call.places.end(), arguments.places.begin(),
                  arguments.places.begin() + arguments.n_tensors)) {
    return false;
  }
  for (std::size_t i = 0; i < arguments.n; ++i) {
    // Names are interned; one that is not is left to Python.
    if (call.names[i].ptr() != arguments.names[i].ptr()) return false;
    if (!call.types[i].is(type_of(arguments.values[i]))) return false;
  }
  for (std::size_t i = 0; i < arguments.n; ++i) {
    if (call.values[i] && !is_same(call.values[i], arguments.values[i])) return false;
  }
  const py::object alike = owned(PyObject_Vectorcall(call.like.ptr(), arguments.distinct.data(),
                                                     arguments.n_distinct, nullptr));
  return is_true(alike);
}

py::object RememberedCalls::go(const py::object& launches, RepeatedLaunches* in_c,
                               Arguments& arguments) {
  const std::size_t n = arguments.n_tensors;
  if (in_c != nullptr) return in_c->start(arguments.tensors.data(), n, arguments.at);
  const py::object tensors = owned(PyList_New(static_cast<Py_ssize_t>(n)));
  const py::object at = owned(PyList_New(static_cast<Py_ssize_t>(n)));
  for (std::size_t i = 0; i < n; ++i) {
    const auto index = static_cast<Py_ssize_t>(i);
    PyList_SET_ITEM(tensors.ptr(), index, py::handle(arguments.tensors[i]).inc_ref().ptr());
    PyList_SET_ITEM(at.ptr(), index,
                    owned(PyLong_FromUnsignedLongLong(arguments.at[i])).release().ptr());
  }
  return called(launches, tensors, at);
}

py::object RememberedCalls::again(py::handle given, py::handle named) {
  py::object launches;  // held: a call that they make may have this one forgotten
  RepeatedLaunches* in_c = nullptr;
  Arguments arguments;
  try {
    if (calls_.empty() || !is_quiet() || !read(given, named, arguments)) return py::none();
    const bool grad_enabled = says_yes(ways_.is_grad_enabled);
    const auto [first, last] = calls_.equal_range(arguments.key);
    const auto call = std::find_if(first, last, [&](const auto& one) {
      return one.second.grad_enabled == grad_enabled && matches(one.second, arguments);
    });
    if (call == last) return py::none();
    launches = call->second.launches;
    in_c = call->second.in_c;
  } catch (const PythonErrorSet&) {  // of a tensor without shape or memory, say
    PyErr_Clear();
    return py::none();
  }
  return go(launches, in_c, arguments);
}

void RememberedCalls::remember(py::handle given, py::handle named, py::object like,
                               py::object launches) {
  Arguments arguments;
  if (!read(given, named, arguments)) return;
  Call call{.names = {},
            .values = {},
            .types = {},
            .places = {arguments.places.begin(), arguments.places.begin() + arguments.n_tensors},
            .grad_enabled = says_yes(ways_.is_grad_enabled),
            .like = std::move(like),
            .launches = launches,
            .in_c = fast::owner_of<&RepeatedLaunches::again>(launches)};
  for (std::size_t i = 0; i < arguments.n; ++i) {
    const py::handle type = type_of(arguments.values[i]);
    const bool is_tensor = is_one_of(ways_.tensors, type);
    call.names.push_back(py::reinterpret_borrow<py::object>(arguments.names[i]));
    call.types.push_back(py::reinterpret_borrow<py::object>(type));
    call.values.push_back(is_tensor ? py::object()
                                    : py::reinterpret_borrow<py::object>(arguments.values[i]));
  }
  if (calls_.size() >= kMostCalls) calls_.clear();
  calls_.emplace(arguments.key, std::move(call));
}

}  // namespace flash
