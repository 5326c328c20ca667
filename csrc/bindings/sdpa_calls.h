// PyTorch's scaled_dot_product_attention from its arguments to the launch, for the calls that it
// would compute with FlashAttention.
//
// What PyTorch has registered for FlashAttention serves every call; the way there, through its
// dispatcher and back to Python, takes longer than all that is done here.
#pragma once

#include <pybind11/pytypes.h>

#include "launch_cache.h"
#include "new_tensors.h"
#include "python_calls.h"
#include "surroundings.h"

namespace flash {

// What calls are remembered by, and what is asked of PyTorch for them.
struct SdpaWays {
  pybind11::object key;
  pybind11::object backend_of;  // of a call's arguments, what PyTorch would compute it with
  pybind11::object flash;       // its answer for FlashAttention
  // (q, k, v, scale, is_causal) -> o where the call is not remembered; None: it cannot be served
  pybind11::object serve;
};

class SdpaCalls {
 public:
  // `cache`, `around` and `new_tensors` outlive this.
  SdpaCalls(LaunchCache<ForwardCalls>& cache, const Surroundings& around, NewTensors& new_tensors,
            SdpaWays ways);

  // The output; None where nothing was done: the call is PyTorch's, or something has to see it.
  pybind11::object attend(const NamedArguments& given);

 private:
  struct Operands;

  bool is_ours(const Operands& call) const;

  LaunchCache<ForwardCalls>& cache_;
  const Surroundings& around_;
  NewTensors& new_tensors_;
  SdpaWays ways_;
};

}  // namespace flash
