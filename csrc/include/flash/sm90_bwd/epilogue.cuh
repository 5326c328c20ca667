// A warp's 16 rows of a gradient: staged in shared memory, stored by the copy engine.
#pragma once

#include "flash/sm90/forward/epilogue.cuh"
#include "flash/sm90_bwd/matmuls.cuh"

namespace flash::sm90_bwd {

template <HopperBackwardKernelConfig kConfig, typename L>
struct Epilogue : private sm90::Epilogue<forward_config<kConfig, L>()> {
  using Forward = sm90::Epilogue<forward_config<kConfig, L>()>;

  // result * factor, rounded, by way of `staging`, which is the warp's. Called by the whole warp;
  // the copy engine clips rows behind the end.
  FLASH_DEVICE static void store(const typename Matmuls<kConfig, L>::Result& result, float factor,
                                 uint32_t staging, const TensorMap& map, const BoxStart& at,
                                 int lane) {
    Forward::stage(result, {factor, factor}, staging, lane);
    ptx::fence_proxy_async_shared();  // the staged rows, for the copy engine
    __syncwarp();                     // ... of all lanes
    if (lane == 0) ptx::tma_store_5d(&map, staging, 0, at.row, at.chunk, at.head, at.batch);
  }

  // Until the copy engine has read what was staged: then the block's memory may go.
  FLASH_DEVICE static void finish(int lane) {
    if (lane != 0) return;
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  }
};

}  // namespace flash::sm90_bwd
