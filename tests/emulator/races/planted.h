// What the planted races share. Each file is one kernel with one mistake: compiled with -DFIXED it
// is the corrected twin, with -DWITH_MAIN a program for compute-sanitizer (run_racecheck.sh). The
// lines that race end in "// planted".
#pragma once

#ifdef FIXED
#define FIX(...) __VA_ARGS__
#define CHOOSE(planted, fixed) fixed
#else
#define FIX(...)
#define CHOOSE(planted, fixed) planted
#endif

#define KERNEL extern "C" __global__ void kernel(const float* in, float* out)

constexpr unsigned kValues = 4096;  // of in and out

KERNEL;

// nvcc has intrinsics for barrier 0 only.
template <int kBarrier, int kThreads>
__device__ void barrier_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}
template <int kBarrier, int kThreads>
__device__ void barrier_arrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

#ifdef WITH_MAIN
#include <cstdio>

int main() {
  float *in, *out;
  cudaMalloc(&in, kValues * sizeof(float));
  cudaMalloc(&out, kValues * sizeof(float));
  cudaMemset(in, 0, kValues * sizeof(float));
  cudaMemset(out, 0, kValues * sizeof(float));
  kernel<<<GRID, BLOCK>>>(in, out);
  cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
  cudaFree(in);
  cudaFree(out);
  return error != cudaSuccess;
}
#endif
