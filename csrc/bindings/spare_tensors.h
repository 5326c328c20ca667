// Tensors that calls have to return and nobody reads.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>
#include <unordered_map>

#include "launch_cache.h"

namespace flash {

// What is asked of Python and PyTorch.
struct SpareWays {
  pybind11::object make;       // (q) -> a tuple of them, for q's device and type
  pybind11::object make_kept;  // the same for later calls too, or None: not now
  pybind11::object use_count;  // (tensor) -> how many own it
};

// Gives out those of an earlier call again, unless somebody still has one of them: what PyTorch
// takes for free memory, as compiled functions do, belongs to one call.
class SpareTensors {
 public:
  // `cache` outlives this.
  SpareTensors(const LaunchCache<ForwardCalls>& cache, SpareWays ways);

  pybind11::object of(pybind11::handle q);

 private:
  bool is_free(const pybind11::object& tensors) const;

  const LaunchCache<ForwardCalls>& cache_;
  SpareWays ways_;
  std::unordered_map<std::int64_t, pybind11::object> kept_;  // by device and type
};

}  // namespace flash
