// New tensors like others.
//
// PyTorch's empty_like takes twice as long as the function that compiled code makes tensors with,
// which knows no dispatcher: it is told sizes, strides and type, and makes them on the current
// device.
#pragma once

#include <pybind11/pytypes.h>

#include "by_kind.h"
#include "launch_cache.h"

namespace flash {

// What is asked of PyTorch.
struct NewTensorWays {
  pybind11::object empty_like;      // (tensor) -> a new one
  pybind11::object empty_strided;   // (size, stride, dtype) -> a new one, or None: no such function
  pybind11::object description_of;  // (tensor) -> these three, of what empty_like makes
  pybind11::object current_device;  // () -> its number, or None: there is one device
};

class NewTensors {
 public:
  explicit NewTensors(NewTensorWays ways);

  // `words`: the tensor's; `heads_first` as when they were read (LaunchCache::add).
  pybind11::object like(pybind11::handle tensor, TensorWords words, bool heads_first = false);

  // In two steps, for who keeps the first one's result: what to make(), on a device with this
  // number, tensors like `tensor` by. None: they are made without it.
  pybind11::object description_of(pybind11::handle tensor) const;
  pybind11::object make(pybind11::handle description, pybind11::handle tensor, int device) const;

 private:
  bool is_current(int device) const;

  NewTensorWays ways_;
  ByKind<kWordsPerTensor + 1> descriptions_;
};

}  // namespace flash
