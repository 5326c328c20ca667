// The forward pass from its arguments to the launch, for calls like one that was remembered.
//
// Python's way from the function to the launch cache takes as long as a launch: what it asks of
// PyTorch, whether anything records, transforms or watches the call, is asked here.
#pragma once

#include <pybind11/pytypes.h>

#include "launch_cache.h"
#include "new_tensors.h"
#include "prototypes.h"
#include "surroundings.h"

namespace flash {

// What calls are remembered by, and what is asked of PyTorch for them.
struct ForwardWays {
  pybind11::object plain;                   // key of the calls that are not recorded
  pybind11::object recorded;                // key of those that are
  pybind11::object recorded_deterministic;  // and whose gradients shall be deterministic
  pybind11::object are_deterministic;       // () -> whether all gradients shall be
  pybind11::object lse_prototype;           // as Prototypes'
  // (q, k, v, (o, lse, (softmax_scale, causal, deterministic), with_lse)) -> o, or (o, lse)
  pybind11::object record;
};

class PlainCalls {
 public:
  // `cache`, `around` and `new_tensors` outlive this.
  PlainCalls(LaunchCache<ForwardCalls>& cache, const Surroundings& around, NewTensors& new_tensors,
             ForwardWays ways);

  // Launches, and returns o, or (o, lse, None); None where nothing was done: the call was not
  // remembered, or something has to see it. Gradients are recorded where PyTorch would.
  pybind11::object attend(pybind11::handle q, pybind11::handle k, pybind11::handle v,
                          pybind11::handle softmax_scale, pybind11::handle causal,
                          pybind11::handle deterministic, pybind11::handle with_lse);

  // (o, lse), or None as above, of a call that PyTorch has seen already: nothing is asked, nothing
  // recorded. `heads_first`: the tensors, and o, are (batch, heads, seq, d).
  pybind11::object compute(pybind11::handle q, pybind11::handle k, pybind11::handle v,
                           pybind11::handle softmax_scale, pybind11::handle causal,
                           pybind11::handle heads_first);

 private:
  struct Operands;
  struct Outputs;
  using Query = LaunchCache<ForwardCalls>::Query;

  bool describe(const Operands& given, bool heads_first, Query& query) const;
  // With the operands in the query already.
  bool launch(const Operands& given, pybind11::handle key, bool with_lse, bool heads_first,
              Query& query, Outputs& made);

  LaunchCache<ForwardCalls>& cache_;
  const Surroundings& around_;
  NewTensors& new_tensors_;
  ForwardWays ways_;
  Prototypes lse_;
};

}  // namespace flash
