// The descriptors of tile/matrix_descriptor.h, as numbers.
#include "flash/tile/matrix_descriptor.h"

using namespace flash;

constexpr int kSteps = 16;

// out[step][2]: descriptors of a K-major and of an MN-major tile.
template <int kSwizzleBytes>
__device__ void describe(uint64_t* out, uint32_t address, int chunk_bytes) {
  using Descriptor = MatrixDescriptor<kSwizzleBytes>;
  for (int step = 0; step < kSteps; ++step) {
    out[2 * step] = Descriptor::k_major(address).k_step(step, chunk_bytes);
    out[2 * step + 1] = Descriptor::mn_major(address, chunk_bytes).mn_step(step);
  }
}

extern "C" __global__ void kernel(uint64_t* out, uint32_t address, int chunk_bytes, int swizzle) {
  swizzle == 128 ? describe<128>(out, address, chunk_bytes)
                 : describe<64>(out, address, chunk_bytes);
}
