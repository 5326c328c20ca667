// A warp's 16 rows of a gradient: staged in shared memory, stored by the copy engine.
#pragma once

#include "flash/sm90/forward/epilogue.cuh"
#include "flash/sm90_bwd/matmuls.cuh"

namespace flash::sm90_bwd {

// result * factor, rounded, by way of `staging`, which is the warp's. Called by the whole warp; the
// copy engine clips rows behind the end, and is told to hurry by wait_staging_free().
template <HopperBackwardKernelConfig kConfig, typename L>
struct Epilogue : private sm90::Epilogue<forward_config<kConfig, L>()> {
  using Forward = sm90::Epilogue<forward_config<kConfig, L>()>;
  using Forward::wait_staging_free;

  FLASH_DEVICE static void store(const typename Matmuls<kConfig, L>::Result& result, float factor,
                                 uint32_t staging, const TensorMap& map, int row, int head,
                                 int batch, int lane) {
    Forward::stage(result, {factor, factor}, staging, lane);
    ptx::fence_proxy_async_shared();  // the staged rows, for the copy engine
    __syncwarp();                     // ... of all lanes
    if (lane == 0) {
      ptx::tma_store_5d(&map, staging, 0, row, 0, head, batch);
      ptx::tma_store_commit();
    }
  }
};

}  // namespace flash::sm90_bwd
