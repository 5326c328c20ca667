// tile/divisor.cuh: quotients and remainders of `count` numbers by each of `n_divisors`.
#include "flash/tile/divisor.cuh"

using namespace flash;

extern "C" __global__ void divide(const uint32_t* numbers, int count, const uint32_t* divisors,
                                  int n_divisors, uint32_t* quotients, uint32_t* remainders) {
  for (int i = threadIdx.x; i < n_divisors; i += blockDim.x) {
    const Divisor divisor(divisors[i]);
    for (int j = 0; j < count; ++j) {
      const Divisor::Result found = divisor.divide(numbers[j]);
      quotients[i * count + j] = found.quotient;
      remainders[i * count + j] = found.remainder;
    }
  }
}
