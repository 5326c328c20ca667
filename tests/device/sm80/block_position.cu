// Where a thread block's queries, keys and outputs begin: BlockPosition<CONFIG>.
#include "flash/sm80/forward/position.cuh"

using namespace flash;
using namespace flash::sm80;

constexpr auto kConfig = CONFIG;

// out: the addresses of q, k, v, o and lse, and the first row.
template <Coverage kCoverage>
__device__ void describe(const ForwardArgs& args, long long* out) {
  const BlockPosition<kConfig, kCoverage> at(args, blockIdx.x);
  out[0] = reinterpret_cast<long long>(at.q);
  out[1] = reinterpret_cast<long long>(at.k);
  out[2] = reinterpret_cast<long long>(at.v);
  out[3] = reinterpret_cast<long long>(at.o);
  out[4] = reinterpret_cast<long long>(at.lse);
  out[5] = at.first_row;
}

extern "C" __global__ void kernel(const __grid_constant__ ForwardArgs args, long long* out,
                                  int any_length) {
  long long* own = out + 6 * blockIdx.x;
  any_length ? describe<Coverage::kAnyLength>(args, own)
             : describe<Coverage::kWholeBlocks>(args, own);
}
