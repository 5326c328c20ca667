// Counting thread blocks by ptx/atomic.cuh.
#include "flash/ptx/atomic.cuh"

using namespace flash;

// Each thread block writes a number and counts itself; the last adds them all up. `fenced`: else it
// counts without making known what it wrote.
extern "C" __global__ void last_adds(unsigned* counter, int* numbers, int* sum, int fenced) {
  const unsigned last = gridDim.x - 1;
  numbers[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
  const unsigned before =
      fenced != 0 ? ptx::atomic_inc_acq_rel(counter, last) : atomicInc(counter, last);
  if (before != last) return;
  int total = 0;
  for (unsigned i = 0; i <= last; ++i) total += numbers[i];
  *sum = total;
}

// One thread block after the other appends its number. `released`: else the count alone.
extern "C" __global__ void in_turn(unsigned* counter, int* numbers, int* length, int released) {
  while (ptx::ld_acquire(counter) != blockIdx.x) {
  }
  numbers[*length] = static_cast<int>(blockIdx.x) + 1;
  *length += 1;
  if (released != 0) {
    ptx::red_add_release(counter, 1);
  } else {
    atomicAdd(counter, 1);
  }
}
