// The element types of Q, K, V and O.
#pragma once

namespace flash {

// The numbers are PyTorch's ScalarType values, so a tensor's dtype needs no translation table.
enum class DType : int { kFP16 = 5, kBF16 = 15 };

// Bytes of one element: both types have 16 bits.
constexpr int bytes_of(DType) { return 2; }

}  // namespace flash
