// The two passes of a torch.autograd.Function without Python's frames: its node asks the class for
// `forward` and the context for `apply`, and takes what C has under these names.
#pragma once

#include <pybind11/pytypes.h>

#include "python_calls.h"

namespace flash {

class RecordedFunction {
 public:
  // `gradients` (d_o, d_lse, saved, options, wanted) -> (d_q, d_k, d_v, None); None: nothing was
  // done. Then `otherwise` (context, d_o, d_lse, saved) computes them.
  RecordedFunction(pybind11::object gradients, pybind11::object otherwise);

  // Of a call that is queued already: `call` is (o, lse, options, with_lse). Keeps q, k, v, o and
  // lse as save_for_backward does. Returns o, or (o, lse).
  pybind11::object forward(pybind11::handle context, pybind11::handle q, pybind11::handle k,
                           pybind11::handle v, pybind11::handle call);

  // (context, d_o), or (context, d_o, d_lse); raises what reading the saved tensors does.
  pybind11::object backward(const NamedArguments& given);

 private:
  pybind11::object gradients_;
  pybind11::object otherwise_;
};

}  // namespace flash
