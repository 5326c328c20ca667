// flash_attn_func from its arguments to the launch, for calls like one that was remembered.
//
// Python's way from the function to the launch cache takes as long as a launch: what it asks of
// PyTorch, whether anything records, transforms or watches the call, is asked here.
#pragma once

#include <pybind11/pytypes.h>

#include <vector>

#include "launch_cache.h"

namespace flash {

// A variable of a Python module, and the value that it has while nothing is going on.
struct Setting {
  pybind11::dict variables;
  pybind11::object name;
  pybind11::object quiet;
};

// What is asked of PyTorch.
struct Surroundings {
  std::vector<pybind11::object> quiet;  // functions that return false while nothing is going on
  std::vector<Setting> settings;
  pybind11::object is_grad_enabled;
  pybind11::object empty_like;  // (q) -> o
  pybind11::object lse_like;    // (q) -> lse
};

class PlainCalls {
 public:
  // `cache` outlives this; `key` is what it remembers the calls by.
  PlainCalls(LaunchCache<ForwardCalls>& cache, pybind11::object key, Surroundings surroundings);

  // Launches, and returns o, or (o, lse, None); None where nothing was done: the call was not
  // remembered, or something has to see it.
  pybind11::object attend(pybind11::handle q, pybind11::handle k, pybind11::handle v,
                          pybind11::handle softmax_scale, pybind11::handle causal,
                          bool with_lse) const;

 private:
  bool is_quiet() const;

  LaunchCache<ForwardCalls>& cache_;
  pybind11::object key_;
  Surroundings around_;
};

}  // namespace flash
