// Thread blocks of a cluster and each other's shared memory (ptx/cluster.cuh).
#include "flash/ptx/cluster.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/stmatrix.cuh"
#include "flash/ptx/wgmma.cuh"

using namespace flash;

// Each block's rank, and how far apart a place is in two blocks of the cluster, as mapa says.
extern "C" __global__ void __cluster_dims__(2, 1, 1) ranks(int* out) {
  __shared__ int memory[2];
  const uint32_t address = ptx::shared_address(memory);
  const uint32_t rank = ptx::cluster_rank();
  int* own = out + 3 * blockIdx.x;
  own[0] = rank;
  own[1] = ptx::peer_address(address + 4, rank) - ptx::peer_address(address, rank);
  own[2] = ptx::peer_address(address, 0) != ptx::peer_address(address, 1);
}

constexpr int kTile = 64;  // rows and columns
constexpr int kTileBytes = 2 * kTile * kTile;
constexpr int kPieceBytes = kTileBytes / 4;  // of a warp

__device__ void wait(uint32_t barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait(barrier, parity)) {
  }
}

// Rows of 128 bytes whose pieces of 16 are swizzled, as wgmma reads them.
__device__ void write_rows(const uint32_t* in, uint32_t tile, int first, int lane) {
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    uint32_t r[4];
    for (int m = 0; m < 4; ++m) {
      const int row = first + m % 2 * 8 + lane / 4, column = 16 * step + m / 2 * 8 + lane % 4 * 2;
      r[m] = in[(row * kTile + column) / 2];
    }
    const int row = first + lane / 8 % 2 * 8 + lane % 8, piece = 2 * step + lane / 16;
    ptx::stmatrix_x4(tile + row * 128 + (piece ^ row % 8) * 16, r[0], r[1], r[2], r[3]);
  }
}

__device__ uint64_t descriptor(uint32_t tile) {
  return tile / 16 | uint64_t{1} << 16 | uint64_t{1024 / 16} << 32 | uint64_t{1} << 62;
}

// In each phase warps 0 to 3 of a block write a tile and send it to the other block, whose tile
// warps 4 to 7 multiply with their own: out[block][phase] = own x other^T. Both tiles are free
// again when the multiplying warps of both blocks have said so.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256)
    exchange(const uint32_t* in, float* out, int n_phases, int bytes) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t own = ptx::shared_address(memory), other = own + kTileBytes;
  const uint32_t full = other + kTileBytes, empty = full + 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t peer = ptx::cluster_rank() ^ 1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 4);
    ptx::mbarrier_init(empty, 8);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  in += blockIdx.x * n_phases * (kTileBytes / 4);
  out += blockIdx.x * n_phases * kTile * kTile;
  for (int phase = 0; phase < n_phases; ++phase) {
    const uint32_t parity = phase % 2;
    if (warp < 4) {
      const uint32_t piece = warp * kPieceBytes;
      wait(empty, parity ^ 1);
      write_rows(in + phase * (kTileBytes / 4), own, 16 * warp, lane);
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (lane == 0) {
        ptx::mbarrier_arrive_expect_tx(full, bytes);
        ptx::bulk_copy_to_peer(ptx::peer_address(other + piece, peer), own + piece, kPieceBytes,
                               ptx::peer_address(full, peer));
      }
    } else {
      float sums[kTile / 2];
      wait(full, parity);
      ptx::wgmma_touch(sums);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kTile / 16; ++step) {
        ptx::Wgmma<kTile>::ss<DType::kFP16>(sums, descriptor(own) + 2 * step,
                                            descriptor(other) + 2 * step, step != 0);
      }
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_touch(sums);
      if (lane == 0) {
        ptx::mbarrier_arrive(empty);
        ptx::mbarrier_arrive_at_peer(ptx::peer_address(empty, peer));
      }
      float* tile = out + phase * kTile * kTile;
#pragma unroll
      for (int i = 0; i < kTile / 2; ++i) {
        const int row = 16 * (warp - 4) + i / 2 % 2 * 8 + lane / 4;
        tile[row * kTile + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
      }
    }
  }
  ptx::cluster_sync();
}
