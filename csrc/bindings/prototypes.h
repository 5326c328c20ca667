// Memory that a call needs beside what is shaped like its inputs.
#pragma once

#include <pybind11/pytypes.h>

#include "by_kind.h"
#include "launch_cache.h"
#include "new_tensors.h"

namespace flash {

// (batch, seq, heads, d_head), as Python gets them.
pybind11::object sizes_of(TensorWords words);

// Makes tensors like prototypes, of which there is one for each kind of q, or of call: describing a
// tensor to PyTorch anew takes twice as long.
class Prototypes {
 public:
  // `make` -> a tensor of any memory, or None: there is nothing to make. `new_tensors` outlives
  // this.
  Prototypes(pybind11::object make, NewTensors& new_tensors);

  // By make(config, q, sizes of q).
  pybind11::object empty(pybind11::handle config, pybind11::handle q, TensorWords q_words);
  // By make(config, q, sizes of q, sizes of k, causal).
  pybind11::object empty(pybind11::handle config, pybind11::handle q, TensorWords q_words,
                         TensorWords k_words, pybind11::handle causal);

 private:
  using Known = ByKind<2 * kWordsPerTensor + 2>;

  template <typename Ask>
  pybind11::object like(const Known::Key& key, pybind11::handle config, TensorWords q_words,
                        Ask ask);

  pybind11::object make_;
  NewTensors& new_tensors_;
  Known known_;
};

}  // namespace flash
