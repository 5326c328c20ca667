// Fused backward attention for sm_90a: warp-specialised, TMA, wgmma. Three kernels:
//
//   kDots   RowStats of every query (flash/tile/row_dots.cuh), and zeros for its sums of dQ, or for
//           the counters of their order, and of tiles.
//   kKeys   A thread block keeps 128 rows of K and V while blocks of Q and dO pass by, of all query
//           heads that share them; and then the next (tiles.cuh). It sums dV = P^T dO and dK = dS^T
//           Q in registers, and adds its keys' share of dQ = dS K to sums in global memory.
//   kRound  dQ from these; in order, the thread block that adds last does it.
//
// Scores are computed once: five matmuls, where flash/sm90_bwd needs seven. The price is that the
// thread blocks' shares of dQ are added in the order in which they come, so that its last bits
// differ from run to run, or that they wait for each other (AddBy::kInOrder); dK and dV are bitwise
// repeatable anyway.
//
// The launcher queues all three early: each begins while the one before it ends, and waits for it.
//
// Warpgroup 0 produces, and sends what is staged of dQ; the others consume, as in flash/sm90_bwd.
#pragma once

#include "flash/ptx/grid_dependency.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/setmaxnreg.cuh"
#include "flash/sm90_bwd/backward.cuh"
#include "flash/sm90_bwd/producer.cuh"
#include "flash/sm90_bwd_fused/consumer.cuh"
#include "flash/sm90_bwd_fused/ordered_work.cuh"
#include "flash/sm90_bwd_fused/round.cuh"
#include "flash/sm90_bwd_fused/split_heads.cuh"
#include "flash/sm90_bwd_fused/split_work.cuh"
#include "flash/sm90_bwd_fused/sums_order.cuh"
#include "flash/sm90_bwd_fused/sums_sender.cuh"
#include "flash/sm90_bwd_fused/tiles.cuh"
#include "flash/tile/clear_sums.cuh"
#include "flash/tile/row_dots.cuh"
#include "flash/tile/visible.cuh"

namespace flash::sm90_bwd_fused {

template <typename L>
FLASH_DEVICE void init_fused_barriers(const L& smem) {
  constexpr int kWarps = FusedBackwardKernelConfig::kWarps;
  for (int stage = 0; stage < L::kDsStages; ++stage) {
    ptx::mbarrier_init(smem.ds_full(stage), kWarps);
    ptx::mbarrier_init(smem.ds_empty(stage), kWarps);
  }
  for (int buffer = 0; buffer < L::kBuffers; ++buffer) {
    for (int group = 0; group < L::kGroups; ++group) {
      ptx::mbarrier_init(smem.staged(buffer, group), L::kGroupWarps * 32);
    }
  }
  if constexpr (L::kStays) {
    constexpr int kSenders = L::kCopies ? FusedBackwardKernelConfig::kSenders : 0;
    constexpr int kReaders = kWarps + kSenders + 1;
    ptx::mbarrier_init(smem.tile_full(), 1);
    ptx::mbarrier_init(smem.tile_empty(), kReaders);
    ptx::mbarrier_init(smem.own1_empty(), kWarps);
    ptx::mbarrier_init(smem.own2_empty(), kWarps);
    for (int buffer = 0; buffer < L::kBuffers; ++buffer) {
      ptx::mbarrier_init(smem.sums_full(buffer), 1);
    }
  }
}

// Warp 0 of the producers' loads, 1 and 2 send what the consumers have staged, 3 draws tiles.
template <FusedBackwardKernelConfig kConfig, typename L>
struct Roles {
  using Own = typename L::Work;
  static constexpr int kDrawer = 3;

  const BackwardKernelArgs& args;
  const L& smem;
  const int warp;  // of the warpgroup
  const int lane;

  FLASH_DEVICE Roles(const BackwardKernelArgs& launch_args, const L& layout)
      : args(launch_args),
        smem(layout),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  FLASH_DEVICE bool sends() const {
    return kConfig.copies() && warp > 0 && warp <= FusedBackwardKernelConfig::kSenders;
  }

  // Of a thread block with one tile.
  FLASH_DEVICE void produce(const Own& work) const {
    if (threadIdx.x == 0) sm90_bwd::Producer<L, Own>{args, smem}.run(work);
    if (sends()) sender().run(work);
  }
  FLASH_DEVICE void consume(const Own& work, int group) const {
    Consumer<kConfig, L> consumer(args, smem, group);
    consumer.run(work, 0);
    consumer.rows.finish();
  }

  // Of one that stays.
  FLASH_DEVICE void produce_tiles() const {
    if (warp == 0) {
      if (lane == 0) load_tiles(args, smem);
    } else if (sends()) {
      send_tiles();
    } else if (warp == kDrawer && lane == 0) {
      draw_tiles<kConfig>(args.call, smem);
    }
  }
  FLASH_DEVICE void consume_tiles(int group) const {
    Consumer<kConfig, L> consumer(args, smem, group);
    for (;;) {
      consumer.tile.take();
      consumer.rows.finish();
      const OwnTile tile = consumer.tile.get();
      if (tile.block == kNoTile) return;
      consumer.meet();  // nobody stages dK any more, where dS will be written
      consumer.run(Own(args.call, tile), consumer.tile.parity);
      consumer.tile.recall_parity();
    }
  }

 private:
  FLASH_DEVICE void send_tiles() const {
    WarpTile<L> own{smem, smem.kept_by_sender(warp - 1), lane};
    Sender sender = this->sender();
    for (;;) {
      own.take();
      const OwnTile tile = own.get();
      if (tile.block == kNoTile) return;
      sender.run(Own(args.call, tile));
      own.recall_parity();
    }
  }

  using Sender = SumsSender<kConfig, L>;
  FLASH_DEVICE Sender sender() const { return {args, smem, warp - 1, lane}; }
};

// `place`: what a Work is made of, beside the call; nothing where thread blocks stay.
template <FusedBackwardKernelConfig kConfig, typename L, typename... Place>
FLASH_DEVICE void gradients(const BackwardKernelArgs& args, const Place&... place) {
  constexpr auto kTwoPass = kConfig.two_pass();
  extern __shared__ __align__(1024) char shared_memory[];
  const L smem{ptx::shared_address(shared_memory)};
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  if (threadIdx.x == 0) {
    init_fused_barriers(smem);
    sm90_bwd::init_barriers(smem);
  }
  if constexpr (L::kStays) ptx::await_grids_before();
  __syncthreads();  // the barriers are initialised

  using Part = Roles<kConfig, L>;
  const auto take_part = [&](auto&& produce, auto&& consume) {
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<kTwoPass.producer_registers(Variant::kKeys)>();
      produce();
    } else {
      ptx::setmaxnreg_inc<kTwoPass.consumer_registers(Variant::kKeys)>();
      consume(warpgroup - 1);
    }
  };
  if constexpr (L::kStays) {
    take_part([&] { Part(args, smem).produce_tiles(); },
              [&](int group) { Part(args, smem).consume_tiles(group); });
  } else {
    const typename L::Work work(args.call, place...);
    take_part([&] { Part(args, smem).produce(work); },
              [&](int group) { Part(args, smem).consume(work, group); });
  }
}

// Whether the last query of a block sees no key, so that the sums of the block have no share.
template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE bool has_no_sums(const BackwardArgs& args, int row) {
  const int last = row / kConfig.keys_columns * kConfig.keys_columns + kConfig.keys_columns - 1;
  return n_visible_keys(args, min(last, args.seqlen_q - 1)) == 0;
}

// Rows of dQ without sums, of those from `first` of a query head of a batch on.
template <FusedBackwardKernelConfig kConfig, int kRows>
FLASH_DEVICE void clear_rows(const BackwardArgs& args, unsigned batch_head, int first) {
  constexpr bool kOfOneBlock = kConfig.keys_columns % kRows == 0;
  constexpr int kPieces = kConfig.row_bytes() / 16;
  if (args.d_q == nullptr || !has_no_sums<kConfig>(args, first)) return;  // later ones see more
  const int64_t head = batch_head % static_cast<unsigned>(args.n_heads_q);
  const int64_t batch = batch_head / static_cast<unsigned>(args.n_heads_q);
  char* const d_q =
      static_cast<char*>(args.d_q) +
      (batch * args.d_q_stride_batch + head * args.d_q_stride_head) * bytes_of(kConfig.dtype);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += blockDim.x) {
    const int64_t row = first + i / kPieces;
    if (row >= args.seqlen_q) break;
    if (!kOfOneBlock && !has_no_sums<kConfig>(args, static_cast<int>(row))) break;
    ptx::st_global_16(d_q + row * args.d_q_stride_seq * bytes_of(kConfig.dtype) + i % kPieces * 16,
                      {});
  }
}

// In order, the first thread block stores its share, and the last one rounds the sums. So it is
// counters that begin with zero, and dQ of queries that see no key.
template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE void prepare_order(const BackwardArgs& args) {
  constexpr int kRows =
      sm90_bwd::HopperBackwardKernelConfig::kDotsThreads / lanes_of_row(kConfig.d_head);
  if (threadIdx.x < kRows) {
    counters_of<kConfig>(args)[int64_t{blockIdx.x} * kRows + threadIdx.x] = 0;
  }
  const unsigned n_rows =
      static_cast<unsigned>(row_stats_rows(args.seqlen_q, kConfig.stats_block()));
  const int row = static_cast<int>(blockIdx.x % (n_rows / kRows) * kRows);
  clear_rows<kConfig, kRows>(args, blockIdx.x / (n_rows / kRows), row);
}

template <FusedBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardKernelArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    ptx::await_grids_before();
    ptx::let_next_grid_begin();  // it waits for this one's end, but its launch takes time
    if constexpr (kConfig.add_by == AddBy::kInOrder) {
      prepare_order<kConfig>(args.call);
    } else {
      clear_query_sums<kConfig.d_head, sm90_bwd::HopperBackwardKernelConfig::kDotsThreads>(
          args.call);
      if (blockIdx.x == 0 && threadIdx.x == 0) *tile_counter<kConfig>(args.call) = 0;
    }
    if (blockIdx.x == 0 && args.call.head_splits > 1) {
      HeadParts<kConfig>(args.call).clear_counters();
    }
    write_row_stats<kConfig.dtype, kConfig.d_head,
                    sm90_bwd::HopperBackwardKernelConfig::kDotsThreads, kConfig.stats_block()>(
        args.call);
  } else if constexpr (kVariant == Variant::kKeys) {
    if constexpr (kConfig.add_by == AddBy::kInOrder) {
      gradients<kConfig, Layout<kConfig, InOrder>>(args);
    } else {
      gradients<kConfig, Layout<kConfig, AsTheyCome>>(args);
    }
  } else {
    ptx::await_grids_before();
    round_query_sums<kConfig>(args.call);
  }
}

}  // namespace flash::sm90_bwd_fused
