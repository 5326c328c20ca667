// Tensor maps of TMA that another library made, for tensors of the same kind at other addresses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flash {

// cuTensorMapReplaceAddress, of the driver's ABI: (map, address) -> CUresult.
using ReplaceAddress = int (*)(void*, void*);

class KeptMap {
 public:
  static constexpr std::size_t kBytes = 128;  // of a CUtensorMap
  using Bytes = std::array<std::uint8_t, kBytes>;

  // The kernel's `parameter`, of the tensor at that position. Raises ValueError where the bytes are
  // no map of `address`, as the driver writes it.
  KeptMap(std::size_t parameter, std::size_t tensor, const Bytes& bytes, std::uint64_t address,
          ReplaceAddress replace);

  std::size_t parameter() const { return parameter_; }
  std::size_t tensor() const { return tensor_; }

  // The map of a tensor there, until it is asked for another one. Raises CudaError where the driver
  // refuses the address.
  void* at(std::uint64_t address, ReplaceAddress replace);

 private:
  alignas(kBytes) Bytes bytes_;
  std::size_t parameter_;
  std::size_t tensor_;
  std::uint64_t address_;
};

}  // namespace flash
