// What is going on in PyTorch around a call.
#pragma once

#include <pybind11/pytypes.h>

#include <vector>

namespace flash {

// A variable of a Python module, and the value that it has while nothing is going on.
struct Setting {
  pybind11::dict variables;
  pybind11::object name;
  pybind11::object quiet;
};

struct Surroundings {
  std::vector<pybind11::object> quiet;  // functions that return false while nothing is going on
  std::vector<Setting> settings;
  pybind11::object is_grad_enabled;
  pybind11::object is_negated;  // (tensor): a view with the other sign, which memory does not show

  // Nothing records, transforms or watches calls; derivatives are not asked about.
  bool is_quiet() const;
};

}  // namespace flash
