// Queries, or the keys of a latent cache, as the two tensors that their last dimension holds one
// behind the other.
#pragma once

#include <array>
#include <cstdint>

#include "tensor_reader.h"

namespace flash {

struct LatentParts {
  dlpack::Tensor first, rest;  // their shapes lie here: this does not move while they are used

  LatentParts() = default;
  LatentParts(const LatentParts&) = delete;
  LatentParts& operator=(const LatentParts&) = delete;

  // Of a tensor of 3 or 4 dimensions; `first` has `n` elements in the last one. False: it has no
  // more, or `n` is not positive.
  bool make(const dlpack::Tensor& whole, std::int64_t n);

 private:
  std::array<std::int64_t, 4> shape_of_first_, shape_of_rest_;
};

}  // namespace flash
