// A warp's 16 output rows where a group's rows are those of all heads of a KV head (packing.cuh).
#pragma once

#include "flash/sm90_serve/epilogue.cuh"
#include "flash/sm90_serve/packing.cuh"

namespace flash::sm90_serve {

template <HopperServeKernelConfig kConfig>
struct PackedEnding : Ending<kConfig> {
  static constexpr sm90::HopperForwardKernelConfig kForward = kConfig.forward();
  using Base = sm90::Epilogue<kForward>;

  // Where row `row` of the warp belongs.
  struct Place {
    int query;  // counted from the first of the batch
    int head;

    FLASH_DEVICE Place(const ServeKernelArgs& args, const Rows& rows, int row) {
      const int of_group = rows.of_group + row;
      const int from_first = Packing<kConfig>::query(args, of_group);
      query = rows.first + from_first;
      head = rows.head * args.group_heads + of_group - from_first * args.group_heads;
    }
  };

  FLASH_DEVICE static void add_sinks(const ServeKernelArgs& args, const Rows& rows,
                                     float (&inverse)[2], float (&log_sum_exp)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      if (row >= rows.count) continue;
      const float sink = args.call.sinks[Place(args, rows, row).head];
      Ending<kConfig>::add_sink(sink, inverse[half], log_sum_exp[half]);
    }
  }

  // Called by the whole warp.
  FLASH_DEVICE static void store(const ServeKernelArgs& args, const Rows& rows, uint32_t warp_tile,
                                 int lane) {
    if (rows.count >= Base::kRows && heads_fill_rows(args)) {
      ptx::fence_proxy_async_shared();  // the staged rows, for the copy engine
      __syncwarp();                     // ... of all lanes
      if (lane == 0) store_all(args, rows, warp_tile);
      return;
    }
    __syncwarp();
    store_some(args, rows, warp_tile, lane);
    __syncwarp();  // the staging may be written again
  }

  // One lane of the four that share a row writes its log-sum-exp.
  FLASH_DEVICE static void store_lse(const ServeKernelArgs& args, const Rows& rows,
                                     const float (&log_sum_exp)[2], int lane) {
    const ServeArgs& call = args.call;
    if (call.lse == nullptr || lane % 4 != 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      if (row >= rows.count) continue;
      const Place place(args, rows, row);
      call.lse[rows.batch * call.lse_stride_batch + place.head * call.lse_stride_head +
               place.query] = log_sum_exp[half];
    }
  }

 private:
  // Whether 16 rows are whole queries, as the map's boxes are.
  FLASH_DEVICE static bool heads_fill_rows(const ServeKernelArgs& args) {
    return args.group_heads <= Base::kRows && (args.group_heads & (args.group_heads - 1)) == 0;
  }

  // By one lane: a box for each chunk of columns.
  FLASH_DEVICE static void store_all(const ServeKernelArgs& args, const Rows& rows,
                                     uint32_t warp_tile) {
    const int query = rows.first + Packing<kConfig>::query(args, rows.of_group);
#pragma unroll
    for (int chunk = 0; chunk < kForward.n_value_chunks(); ++chunk) {
      ptx::tma_store_5d(&args.o, warp_tile + chunk * Base::kChunkBytes,
                        chunk * kForward.chunk_columns(), 0, query, rows.head, rows.batch);
    }
    ptx::tma_store_commit();
  }

  // Rows that exist, 16 bytes at a time.
  FLASH_DEVICE static void store_some(const ServeKernelArgs& args, const Rows& rows,
                                      uint32_t warp_tile, int lane) {
    const ServeArgs& call = args.call;
    constexpr int kRowPieces = Ending<kConfig>::kRowPieces;
    char* const o =
        static_cast<char*>(call.o) + rows.batch * call.o_stride_batch * kForward.element_bytes();
    for (int i = lane; i < min(rows.count, Base::kRows) * kRowPieces; i += 32) {
      const int row = i / kRowPieces;
      const int piece = i % kRowPieces;
      const Place place(args, rows, row);
      const int64_t elements = place.query * call.o_stride_seq + place.head * call.o_stride_head;
      const uint32_t from = warp_tile + piece / Ending<kConfig>::kChunkPieces * Base::kChunkBytes +
                            row * kForward.swizzle_bytes() +
                            Ending<kConfig>::staged_in_row(row, piece);
      ptx::st_global_16(o + elements * kForward.element_bytes() + piece * 16,
                        ptx::ld_shared_16<0>(from));
    }
  }
};

// Of a kernel's tiles. (NVRTC has no <type_traits>.)
template <HopperServeKernelConfig kConfig, bool kPacks = kConfig.pack_gqa>
struct EndingOf {
  using Type = Ending<kConfig>;
};
template <HopperServeKernelConfig kConfig>
struct EndingOf<kConfig, true> {
  using Type = PackedEnding<kConfig>;
};

}  // namespace flash::sm90_serve
