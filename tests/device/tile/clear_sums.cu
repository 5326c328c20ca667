// Zeros for sums of dQ: tile/clear_sums.cuh.
#include "flash/tile/clear_sums.cuh"

using namespace flash;

extern "C" __global__ void d64(const __grid_constant__ BackwardArgs args) {
  clear_query_sums<64, 128>(args);
}
extern "C" __global__ void d96(const __grid_constant__ BackwardArgs args) {
  clear_query_sums<96, 128>(args);
}
