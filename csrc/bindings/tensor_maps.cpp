#include "tensor_maps.h"

#include <stdexcept>
#include <string>

#include "flash/core/error.h"

namespace flash {
namespace {

void* pointer_of(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

KeptMap::KeptMap(std::size_t parameter, std::size_t tensor, const Bytes& bytes,
                 std::uint64_t address, ReplaceAddress replace)
    : bytes_(bytes), parameter_(parameter), tensor_(tensor), address_(address) {
  // Of bytes that are something else, the driver would write the address over another part.
  if (replace == nullptr || replace(bytes_.data(), pointer_of(address)) != 0 || bytes_ != bytes) {
    throw std::invalid_argument("128 bytes are no tensor map of address " +
                                std::to_string(address));
  }
}

void* KeptMap::at(std::uint64_t address, ReplaceAddress replace) {
  if (address != address_) {
    const int status = replace(bytes_.data(), pointer_of(address));
    if (status != 0) {
      throw CudaError("cuTensorMapReplaceAddress returned " + std::to_string(status));
    }
    address_ = address;
  }
  return bytes_.data();
}

}  // namespace flash
