// Memory that a call needs beside what is shaped like its inputs.
#pragma once

#include <pybind11/pytypes.h>

#include "by_kind.h"
#include "launch_cache.h"
#include "new_tensors.h"

namespace flash {

// (batch, seq, heads, d_head), as Python gets them.
pybind11::object sizes_of(TensorWords words);

// Makes tensors like prototypes, of which there is one for each kind of q: describing a tensor to
// PyTorch anew takes twice as long.
class Prototypes {
 public:
  // `make` (config, q, sizes of q) -> a tensor of any memory, or None: there is nothing to make.
  // `new_tensors` outlives this.
  Prototypes(pybind11::object make, NewTensors& new_tensors);

  pybind11::object empty(pybind11::handle config, pybind11::handle q, TensorWords q_words);

 private:
  pybind11::object make_;
  NewTensors& new_tensors_;
  ByKind<kWordsPerTensor + 1> known_;
};

}  // namespace flash
