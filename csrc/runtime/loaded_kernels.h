// Kernels that the build lacks: machine code that was compiled since becomes a configuration of the
// table, which is launched like those of the build.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "flash/core/variant.h"

namespace flash {

struct MachineCode {
  Variant variant;
  std::string symbol;  // of the kernel
  std::string cubin;   // or anything else that cudaLibraryLoadData takes
};

// Adds the configuration `name` of a family, with these kernels alone. `config`: the bytes of the
// family's own struct. Returns the kernel id. No device is touched: code that does not fit one is
// refused by the launch.
//
// Throws std::invalid_argument for an unknown family or bytes that are not its struct's, CudaError
// for code that CUDA does not take.
std::size_t load_kernels(std::string_view family, std::string_view name, std::string_view config,
                         std::span<const MachineCode> kernels);

}  // namespace flash
