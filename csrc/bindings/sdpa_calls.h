// PyTorch's scaled_dot_product_attention from its arguments to the launch, for the calls that it
// would compute with FlashAttention.
//
// What PyTorch has registered for FlashAttention serves every call; the way there, through its
// dispatcher and back to Python, takes longer than all that is done here.
#pragma once

#include <pybind11/pytypes.h>

#include "launch_cache.h"
#include "new_tensors.h"
#include "prototypes.h"
#include "python_calls.h"
#include "surroundings.h"

namespace flash {

// What calls are remembered by, and what is asked of PyTorch for them.
struct SdpaWays {
  pybind11::object plain;  // keys, as ForwardWays'
  pybind11::object recorded;
  pybind11::object recorded_deterministic;
  pybind11::object are_deterministic;  // () -> whether all gradients shall be
  pybind11::object lse_prototype;      // as Prototypes'
  // (q, k, v, (o, lse, (scale, causal, deterministic), False)) -> o
  pybind11::object record;
  pybind11::object backend_of;  // of a call's arguments, what PyTorch would compute it with
  pybind11::object flash;       // its answer for FlashAttention
  // (q, k, v, scale, is_causal, recorded) -> o where the call is not remembered; None: it cannot be
  // served
  pybind11::object serve;
};

class SdpaCalls {
 public:
  // `cache`, `around` and `new_tensors` outlive this.
  SdpaCalls(LaunchCache<ForwardCalls>& cache, const Surroundings& around, NewTensors& new_tensors,
            SdpaWays ways);

  // The output, recorded where PyTorch would; None where nothing was done: the call is PyTorch's,
  // or something has to see it.
  pybind11::object attend(const NamedArguments& given);

 private:
  struct Operands;
  using Query = LaunchCache<ForwardCalls>::Query;

  bool is_ours(const Operands& call) const;
  bool is_recorded(const Operands& call) const;
  // Launches, with the tensors in the query already; None where the call is not remembered.
  pybind11::object launch(const Operands& call, bool recorded, Query& query);

  LaunchCache<ForwardCalls>& cache_;
  const Surroundings& around_;
  NewTensors& new_tensors_;
  SdpaWays ways_;
  Prototypes lse_;
};

}  // namespace flash
