// Where tensors are and how many elements they have: by DLPack's exchange where the tensors' class
// has it, else by their own methods, which take five to ten times as long.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>

#include "dlpack_exchange.h"

namespace flash {

class TensorAddresses {
 public:
  // The capsule type.__dlpack_c_exchange_api__, or None; one of a version that this code does not
  // know is not asked.
  explicit TensorAddresses(pybind11::object exchange_api);

  struct Found {
    std::uint64_t address;  // of the first element
    std::uint64_t numel;
  };

  // Of an object whose class is PyTorch's own: nobody checks that. On any device.
  Found of(pybind11::handle tensor) const;
  std::uint64_t address_of(pybind11::handle tensor) const { return of(tensor).address; }

 private:
  pybind11::object capsule_;
  const dlpack::ExchangeApi* api_ = nullptr;
};

}  // namespace flash
