#include "latent_parts.h"

#include <algorithm>

namespace flash {

bool LatentParts::make(const dlpack::Tensor& whole, std::int64_t n) {
  const int last = whole.ndim - 1;
  if (n < 1 || n >= whole.shape[last]) return false;
  first = rest = whole;
  std::copy_n(whole.shape, whole.ndim, shape_of_first_.begin());
  std::copy_n(whole.shape, whole.ndim, shape_of_rest_.begin());
  shape_of_first_[last] = n;
  shape_of_rest_[last] -= n;
  first.shape = shape_of_first_.data();
  rest.shape = shape_of_rest_.data();
  rest.byte_offset += static_cast<std::uint64_t>(n * whole.strides[last] * whole.dtype.bits / 8);
  return true;
}

}  // namespace flash
