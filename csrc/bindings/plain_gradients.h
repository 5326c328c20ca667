// The backward pass from its arguments to the launch, for calls like one that was remembered.
#pragma once

#include <pybind11/pytypes.h>

#include "by_kind.h"
#include "launch_cache.h"
#include "new_tensors.h"
#include "prototypes.h"
#include "surroundings.h"

namespace flash {

// What is asked of Python and PyTorch.
struct BackwardWays {
  // (q, sizes of q, sizes of k, causal, deterministic) -> the configuration
  pybind11::object choose;
  pybind11::object row_stats_prototype;  // as Prototypes'
  pybind11::object d_q_sums_prototype;
};

class PlainGradients {
 public:
  // `cache`, `around` and `new_tensors` outlive this.
  PlainGradients(LaunchCache<BackwardCalls>& cache, const Surroundings& around,
                 NewTensors& new_tensors, BackwardWays ways);

  // Launches, and returns (d_q, d_k, d_v, None), each None where it is not wanted; None where
  // nothing was done. `saved`: (q, k, v, o, lse) of PlainCalls::attend; `options`: (softmax_scale,
  // causal, deterministic); `wanted`: of q, k and v.
  pybind11::object attend(pybind11::handle d_o, pybind11::handle d_lse, pybind11::handle saved,
                          pybind11::handle options, pybind11::handle wanted);

  // The same of SdpaCalls::attend: tensors are (batch, heads, seq, d).
  pybind11::object attend_heads_first(pybind11::handle d_o, pybind11::handle d_lse,
                                      pybind11::handle saved, pybind11::handle options,
                                      pybind11::handle wanted);

  // The same, of a call that PyTorch has seen already: nothing is asked. `heads_first`: as
  // PlainCalls::compute.
  pybind11::object compute(pybind11::handle d_o, pybind11::handle d_lse, pybind11::handle saved,
                           pybind11::handle options, pybind11::handle wanted,
                           pybind11::handle heads_first);

 private:
  struct Call;
  using Query = LaunchCache<BackwardCalls>::Query;

  pybind11::object launch_quietly(const Call& call);
  pybind11::object launch(const Call& call);
  pybind11::object config_of(const Call& call, const Query& query);
  bool is_negated(pybind11::handle tensor) const;

  LaunchCache<BackwardCalls>& cache_;
  const Surroundings& around_;
  NewTensors& new_tensors_;
  BackwardWays ways_;
  Prototypes row_stats_;
  Prototypes d_q_sums_;
  ByKind<2 * kWordsPerTensor + 1> configs_;
};

}  // namespace flash
