// The loads and stores of ptx/memory.cuh: every thread passes its words to another.
#include "flash/ptx/memory.cuh"

using namespace flash;

constexpr int kFar = 2048;  // an offset that becomes part of the instruction

// out[t] = in[t ^ partner], 16 bytes each, through shared memory.
template <int kOffset>
__device__ void pass_16(const uint4* in, uint4* out, int partner, uint32_t memory) {
  const int t = threadIdx.x;
  ptx::st_shared_16<kOffset>(memory + 16 * t, ptx::ld_global_16(&in[t]));
  __syncthreads();
  ptx::st_global_16(&out[t], ptx::ld_shared_16<kOffset>(memory + 16 * (t ^ partner)));
}

extern "C" __global__ void sixteen(const uint4* in, uint4* out, int partner, int far) {
  extern __shared__ __align__(128) char memory[];
  const uint32_t address = ptx::shared_address(memory);
  far ? pass_16<kFar>(in, out, partner, address) : pass_16<0>(in, out, partner, address);
}

template <int kOffset>
__device__ void pass_4(const uint32_t* in, uint32_t* out, int partner, uint32_t memory) {
  const int t = threadIdx.x;
  ptx::st_shared_4<kOffset>(memory + 4 * t, in[t]);
  __syncthreads();
  out[t] = ptx::ld_shared_4(memory + kOffset + 4 * (t ^ partner));
}

extern "C" __global__ void four(const uint32_t* in, uint32_t* out, int partner, int far) {
  extern __shared__ __align__(128) char memory[];
  const uint32_t address = ptx::shared_address(memory);
  far ? pass_4<kFar>(in, out, partner, address) : pass_4<0>(in, out, partner, address);
}

// Stores through pointers and reads through addresses, and the other way round.
extern "C" __global__ void places(uint32_t* out) {
  __shared__ __align__(16) uint32_t words[64];
  const int t = threadIdx.x;
  words[t] = 1000 + t;
  ptx::st_shared_4<128>(ptx::shared_address(&words[t]), 2000 + t);
  __syncwarp();
  out[t] = ptx::ld_shared_4(ptx::shared_address(&words[31 - t]));
  out[32 + t] = words[32 + t];
}

// Stores from where the launch's memory begins on, and reads through its symbol.
extern "C" __global__ void begin(const uint32_t* in, uint32_t* out) {
  const int t = threadIdx.x;
  ptx::st_shared_4<0>(ptx::dynamic_shared_address() + 4 * t, in[t]);
  __syncthreads();
  out[t] = reinterpret_cast<const uint32_t*>(flash_shared_memory)[blockDim.x - 1 - t];
}
