// A warp's 16 output rows, of which some may be another sequence's.
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm90/forward/epilogue.cuh"
#include "flash/sm90_serve/args.h"
#include "flash/sm90_serve/config.h"

namespace flash::sm90_serve {

// A warp's rows of O.
struct Rows {
  int first;  // counted from the first of `batch`; with pack_gqa that of the whole group
  int count;  // that exist: at least one
  int head;   // with pack_gqa the KV head
  int batch;
  int of_group;  // with pack_gqa: the warp's first row, counted from the group's
};

template <HopperServeKernelConfig kConfig>
struct Ending {
  static constexpr sm90::HopperForwardKernelConfig kForward = kConfig.forward();
  using Base = sm90::Epilogue<kForward>;

  FLASH_DEVICE static void add_sinks(const ServeKernelArgs& args, const Rows& rows,
                                     float (&inverse)[2], float (&log_sum_exp)[2], int) {
    const float sink = args.call.sinks[rows.head];
#pragma unroll
    for (int half = 0; half < 2; ++half) add_sink(sink, inverse[half], log_sum_exp[half]);
  }

  // A sink is a key of a value 0: it adds to the denominators alone.
  FLASH_DEVICE static void add_sink(float sink, float& inverse, float& log_sum_exp) {
    const float lse = log_sum_exp;
    float largest = fmaxf(lse, sink);
    if (largest == kNegativeInfinity) largest = 0.0f;  // nothing is seen
    const float sum = ptx::ex2((sink - largest) * kLog2e) + ptx::ex2((lse - largest) * kLog2e);
    log_sum_exp = ptx::fma_rn(ptx::lg2(sum), kLn2, largest);
    if (lse != kNegativeInfinity) inverse *= ptx::ex2((lse - log_sum_exp) * kLog2e);
  }

  // Called by the whole warp.
  FLASH_DEVICE static void store(const ServeKernelArgs& args, const Rows& rows, uint32_t warp_tile,
                                 int lane) {
    if (rows.count >= Base::kRows) {
      ptx::fence_proxy_async_shared();  // the staged rows, for the copy engine
      __syncwarp();                     // ... of all lanes
      if (lane == 0) {
        ptx::tma_store_5d(&args.o, warp_tile, 0, rows.first, 0, rows.head, rows.batch);
        ptx::tma_store_commit();
      }
      return;
    }
    __syncwarp();
    store_some(args.call, rows, warp_tile, lane);
    __syncwarp();  // the staging may be written again
  }

  // One lane of the four that share a row writes its log-sum-exp.
  FLASH_DEVICE static void store_lse(const ServeKernelArgs& launch, const Rows& rows,
                                     const float (&log_sum_exp)[2], int lane) {
    const ServeArgs& args = launch.call;
    if (args.lse == nullptr || lane % 4 != 0) return;
    float* const lse = args.lse + rows.batch * args.lse_stride_batch +
                       rows.head * args.lse_stride_head + rows.first;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      if (row < rows.count) lse[row] = log_sum_exp[half];
    }
  }

 private:
  // Those that exist, 16 bytes at a time.
  FLASH_DEVICE static void store_some(const ServeArgs& args, const Rows& rows, uint32_t warp_tile,
                                      int lane) {
    const int64_t row_bytes = args.o_stride_seq * kForward.element_bytes();
    char* const o = static_cast<char*>(args.o) + rows.first * row_bytes +
                    (rows.batch * args.o_stride_batch + rows.head * args.o_stride_head) *
                        kForward.element_bytes();
    for (int i = lane; i < rows.count * kRowPieces; i += 32) {
      const int row = i / kRowPieces;
      const int piece = i % kRowPieces;
      const uint32_t from = warp_tile + piece / kChunkPieces * Base::kChunkBytes +
                            row * kForward.swizzle_bytes() + staged_in_row(row, piece);
      ptx::st_global_16(o + row * row_bytes + piece * 16, ptx::ld_shared_16<0>(from));
    }
  }

 protected:
  // Pieces of 16 bytes of a row of O.
  static constexpr int kRowPieces = kForward.value_bytes() / 16;
  static constexpr int kChunkPieces = kForward.swizzle_bytes() / 16;

  // Where one of them was staged, in its chunk's row.
  FLASH_DEVICE static int staged_in_row(int row, int piece) {
    return (piece % kChunkPieces ^ Base::swizzle(row)) * 16;
  }
};

}  // namespace flash::sm90_serve
