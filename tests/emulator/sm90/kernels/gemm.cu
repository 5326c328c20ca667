// c = a b^T in tiles of 64 x 64: one warp loads, a warpgroup multiplies and stores; persistent.
#include "hopper.h"

constexpr int kTile = 64;  // rows, columns and depth
constexpr int kStages = 2;
constexpr int kBytes = kTile * kTile * 2;
constexpr int kConsumers = 128;

struct Arguments {
  TensorMap a, b, c;
  int rows, columns, depth;  // in tiles
};

struct Shared {
  alignas(1024) char a[kStages][kBytes];
  alignas(1024) char b[kStages][kBytes];
  alignas(1024) char c[kBytes];
  alignas(8) u64 full[kStages], empty[kStages];
};

HOPPER void produce(const Arguments& args, Shared& shared) {
  int stage = 0;
  u32 parity = 1;
  for (int tile = blockIdx.x; tile < args.rows * args.columns; tile += gridDim.x) {
    for (int k = 0; k < args.depth; ++k) {
      const u32 full = shared_address(&shared.full[stage]);
      mbarrier_wait(shared_address(&shared.empty[stage]), parity);
      mbarrier_expect(full, 2 * kBytes);
      load_2d(shared_address(shared.a[stage]), &args.a, full, k * kTile,
              tile / args.columns * kTile);
      load_2d(shared_address(shared.b[stage]), &args.b, full, k * kTile,
              tile % args.columns * kTile);
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
  }
}

HOPPER void store(const Arguments& args, Shared& shared, const float (&d)[32], int tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane % 16;
  if (threadIdx.x == 0) bulk_wait_read();
  bar_sync(1, kConsumers);  // the store before has read the staging tile
  for (int step = 0; step < 4; ++step) {
    const int piece = (2 * step + lane / 16) ^ (row % 8);
    const float* v = d + 8 * step;
    stmatrix_x4(shared_address(shared.c) + (16 * warp + row) * 128 + piece * 16, pack(v[0], v[1]),
                pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
  }
  fence_proxy_async();
  bar_sync(2, kConsumers);  // the tile is staged
  if (threadIdx.x == 0) {
    store_2d(&args.c, shared_address(shared.c), tile % args.columns * kTile,
             tile / args.columns * kTile);
    bulk_commit();
  }
}

HOPPER void consume(const Arguments& args, Shared& shared) {
  int stage = 0;
  u32 parity = 0;
  for (int tile = blockIdx.x; tile < args.rows * args.columns; tile += gridDim.x) {
    float d[32];
    for (int k = 0; k < args.depth; ++k) {
      mbarrier_wait(shared_address(&shared.full[stage]), parity);
      const u64 a = descriptor(shared_address(shared.a[stage]));
      const u64 b = descriptor(shared_address(shared.b[stage]));
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        wgmma_64(d, a + 2 * step, b + 2 * step, k + step != 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(shared_address(&shared.empty[stage]));
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    store(args, shared, d, tile);
  }
  if (threadIdx.x == 0) bulk_wait_read();
}

extern "C" __global__ void __launch_bounds__(160, 1) gemm(const __grid_constant__ Arguments args) {
  extern __shared__ __align__(1024) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(shared_address(&shared.full[stage]), 1);
      mbarrier_init(shared_address(&shared.empty[stage]), kConsumers / 32);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if (elect()) produce(args, shared);
  } else {
    consume(args, shared);
  }
}
