// The conversions of ptx/convert.cuh on arrays, one a launch.
#include "flash/ptx/convert.cuh"

using namespace flash;

extern "C" __global__ void kernel(const float* low, const float* high, uint32_t* out, int which) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (which == 0) out[i] = ptx::cvt_rn_f16x2_f32(low[i], high[i]);
  if (which == 1) out[i] = ptx::cvt_rn_bf16x2_f32(low[i], high[i]);
  if (which == 2) out[i] = ptx::pack<DType::kFP16>(low[i], high[i]);
  if (which == 3) out[i] = ptx::pack<DType::kBF16>(low[i], high[i]);
}

// out[i]: the two halves of packed[i] as fp32.
extern "C" __global__ void unpacked(const uint32_t* packed, float2* out, int is_bf16) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const ptx::Pair pair =
      is_bf16 ? ptx::unpack<DType::kBF16>(packed[i]) : ptx::unpack<DType::kFP16>(packed[i]);
  out[i] = {pair.low, pair.high};
}
