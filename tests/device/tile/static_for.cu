// The loops of tile/static_for.cuh: every index is usable at compile time.
#include "flash/tile/static_for.cuh"

using namespace flash;

// out: how many times the body ran, then the indices in order.
template <int kBegin, int kEnd, int kStep>
__device__ void indices(int* out) {
  int n = 0;
  static_for<kBegin, kEnd, kStep>([&](auto i) {
    constexpr int kIndex = i;
    static_assert(kIndex == decltype(i)::value);
    out[++n] = kIndex;
  });
  out[0] = n;
}

extern "C" __global__ void kernel(int* out, int which) {
  if (which == 0) indices<0, 5, 1>(out);
  if (which == 1) indices<2, 11, 3>(out);
  if (which == 2) indices<-4, 8, 4>(out);
  if (which == 3) indices<3, 3, 1>(out);
  if (which == 4) indices<5, 2, 1>(out);
  if (which == 5) {  // without a step
    int n = 0;
    static_for<0, 7>([&](auto i) { out[++n] = Int<i>{}; });
    out[0] = n;
  }
}
