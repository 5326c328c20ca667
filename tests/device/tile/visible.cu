// How many keys a row sees: tile/visible.cuh for the argument record of a call.
#include "flash/core/args.h"
#include "flash/tile/visible.cuh"

using namespace flash;

// out[i][4] of row first + i: n_visible_keys and keys_by_mask, then how many keys from `column` on
// it sees, by VisibleKeys::of_row and of_row_when_causal.
extern "C" __global__ void kernel(const __grid_constant__ ForwardArgs args, int first, int column,
                                  int* out) {
  const int i = threadIdx.x;
  const VisibleKeys keys(args, first, column);
  out[4 * i] = n_visible_keys(args, first + i);
  out[4 * i + 1] = keys_by_mask(args, first + i, column);
  out[4 * i + 2] = keys.of_row(i);
  out[4 * i + 3] = keys.of_row_when_causal(i);
}
