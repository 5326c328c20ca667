// Sums of blocks of 256 values, with a race that is popular: it gave right sums up to Pascal.
extern "C" __global__ void reduce(const float* in, float* sums, int n) {
  __shared__ float partial[256];
  const unsigned t = threadIdx.x;
  const unsigned i = blockIdx.x * 256 + t;
  partial[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned half = 128; half >= 32; half /= 2) {
    if (t < half) partial[t] += partial[t + half];
    __syncthreads();
  }
  if (t < 32) {
    for (unsigned half = 16; half > 0; half /= 2) {
      partial[t] += partial[t + half];  // planted: no __syncwarp() between the rounds
    }
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}
