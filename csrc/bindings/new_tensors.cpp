#include "new_tensors.h"

#include <algorithm>
#include <utility>

#include "python_calls.h"

namespace py = pybind11;

namespace flash {

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
  if (description.is_none() || !is_current(device)) return called(ways_.empty_like, tensor);
  return owned(PyObject_Call(ways_.empty_strided.ptr(), description.ptr(), nullptr));
}

bool NewTensors::is_current(int device) const {
  if (ways_.current_device.is_none()) return true;
  const py::object now = owned(PyObject_CallNoArgs(ways_.current_device.ptr()));
  const long number = PyLong_AsLong(now.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw PythonErrorSet{};
  return number == device;
}

}  // namespace flash
