// The kernels of a configuration: flash_helpers.kernels.contract.Variant in Python.
#pragma once

namespace flash {

enum class Variant {
  // Of a forward pass: which problems a kernel takes. A call launches one of them.
  kWhole,  // lengths that are multiples of the blocks, no mask
  kAny,    // any lengths, and the causal mask
  // Of a backward pass: what a kernel computes. A call launches them in this order, for any lengths
  // and masks.
  kDots,     // what the softmax leaves to each query row
  kKeys,     // the gradients of K and V
  kQueries,  // the gradient of Q
  kRound,    // the gradient of Q from its sums, where the kernel of K and V adds them up
  // Of what serves: a call launches those that it needs, in this order.
  kAppend,   // new keys and values go to the cache, and are rotated, as are queries
  kServe,    // attention
  kCombine,  // the merged splits of the keys
};

}  // namespace flash
