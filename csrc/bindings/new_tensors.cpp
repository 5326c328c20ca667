#include "new_tensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {
namespace {

constexpr std::size_t kMostDimensions = 4;

py::object tuple_of(std::span<const std::int64_t> sizes) {
  py::object tuple = owned(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    PyObject* const size = PyLong_FromLongLong(sizes[i]);
    if (size == nullptr) throw PythonErrorSet{};
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), size);
  }
  return tuple;
}

}  // namespace

NewTensors::NewTensors(NewTensorWays ways) : ways_(std::move(ways)) {}

py::object NewTensors::like(py::handle tensor, TensorWords words, bool heads_first) {
  decltype(descriptions_)::Key key;
  std::copy(words.begin(), words.end(), key.begin());
  key.back() = heads_first;
  const py::object description =
      descriptions_.get(key, py::none(), [&] { return description_of(tensor); });
  return make(description, tensor, device_of(words));
}

py::object NewTensors::description_of(py::handle tensor) const {
  return ways_.empty_strided.is_none() ? py::none() : called(ways_.description_of, tensor);
}

py::object NewTensors::make(py::handle description, py::handle tensor, int device) const {
  if (description.is_none() || !is_direct_on(device)) return called(ways_.empty_like, tensor);
  return owned(PyObject_Call(ways_.empty_strided.ptr(), description.ptr(), nullptr));
}

py::object NewTensors::contiguous(py::handle near, std::span<const std::int64_t> sizes,
                                  py::handle dtype, int device) const {
  const py::object size = tuple_of(sizes);
  if (!is_direct_on(device)) {
    static PyObject* const names =
        PyTuple_Pack(1, owned(PyUnicode_InternFromString("dtype")).ptr());
    PyObject* const arguments[] = {near.ptr(), size.ptr(), dtype.ptr()};
    return owned(PyObject_Vectorcall(ways_.new_empty.ptr(), arguments, 2, names));
  }
  std::array<std::int64_t, kMostDimensions> strides{};
  std::int64_t next = 1;
  for (std::size_t i = sizes.size(); i-- > 0; next *= sizes[i]) strides[i] = next;
  const py::object stride = tuple_of(std::span(strides).first(sizes.size()));
  return called(ways_.empty_strided, size, stride, dtype);
}

bool NewTensors::is_direct_on(int device) const {
  if (ways_.empty_strided.is_none()) return false;
  if (ways_.current_device.is_none()) return true;
  const py::object now = owned(PyObject_CallNoArgs(ways_.current_device.ptr()));
  const long number = PyLong_AsLong(now.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw PythonErrorSet{};
  return number == device;
}

}  // namespace flash
