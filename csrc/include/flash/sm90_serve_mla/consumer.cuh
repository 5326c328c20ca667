// The two warpgroups that compute a tile.
//
// The left group computes the scores of a block and turns them into weights, which it keeps as an
// operand and gives to the right group through shared memory; then each adds its columns of the
// output. All threads of a group arrive at the barriers between the two: racecheck follows no named
// barrier at which some arrive and others wait. Scores of a block are multiplied while the right
// group still adds the block before.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/grid_dependency.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm80_serve/scores.cuh"
#include "flash/sm80_serve_mla/serve.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_serve_mla/clearing.cuh"
#include "flash/sm90_serve_mla/epilogue.cuh"
#include "flash/sm90_serve_mla/matmuls.cuh"
#include "flash/sm90_serve_mla/queries.cuh"
#include "flash/sm90_serve_mla/softmax.cuh"

namespace flash::sm90_serve_mla {

template <HopperMlaKernelConfig kConfig>
class Consumer {
 public:
  static constexpr auto kAmpere = kConfig.ampere();
  static constexpr auto kServing = kAmpere.serving();
  static constexpr int kThreads = kConfig.compute_threads();
  using Mm = Matmuls<kConfig>;
  using Piece = sm80_serve::Piece<kServing>;
  using Pieces = sm80_serve_mla::ParkedPieces<kAmpere>;

  FLASH_DEVICE Consumer(const ServeKernelArgs& args, const Place<kConfig>& at,
                        const sm80_serve::Abreast& abreast)
      : args_(args.call), abreast_(abreast), at_(at) {}

  // `piece`: the first; `pieces`: those behind it.
  FLASH_DEVICE void run(Piece piece, Pieces& pieces, sm80_serve::UnitCount share_units) {
    sm80_serve_mla::Parked<Piece> parked(&at_.state().piece, at_.lane);
    for (;; piece = pieces.next(args_, abreast_)) {
      parked = piece;
      Queries<kConfig>{args_, piece.tile, at_}.copy();  // the scores before are computed
      ptx::fence_proxy_async_shared();
      ptx::bar_sync(kConsumers, kThreads);  // Q is visible; the ends of the piece before were read

      typename Mm::Output o;
#pragma unroll
      for (float& x : o) x = 0.0f;
      if (at_.group() == kLeft) {
        compute_left(*parked, o);
      } else {
        compute_right(*parked, o);
      }
      ptx::bar_sync(kConsumers, kThreads);  // the rows' ends are visible
      // The kernel that merges waits for this one's end, but its launch takes time. Begun with this
      // one, it made both slower.
      if (sm80_serve_mla::is_split(args_)) ptx::let_next_grid_begin();
      const sm80_serve::Parts<kServing> parts(args_, *parked, share_units, abreast_);
      store_rows<kConfig>(args_, *parked, parts, o, at_);
      if (!parked->is_whole && !sm80_serve_mla::is_split(args_)) {
        parts.arrive(at_.flag(), [] { ptx::bar_sync(kConsumers, kThreads); });
      }
      if (pieces.is_at_end()) return;
    }
  }

 private:
  FLASH_DEVICE void compute_left(const Piece& piece, typename Mm::Output& o) {
    const KeyRange keys = piece.keys;
    const KeyRange whole = piece.seen_by_all();
    const Blocks<kConfig> blocks(keys);
    Softmax softmax(args_.softmax_scale);
    for (int i = 0; i < blocks.n; ++i) {
      const int key = blocks.first + i * kConfig.B_c;
      const int stage = ring_.buffer;
      if (needs_clearing<kConfig>(keys, key)) {
        sm90::wait_phase(at_.cleared(), cleared_);
        cleared_ ^= 1;
      }
      typename Mm::Scores s;
      sm90::wait_phase(at_.full(stage, kLeft), ring_.parity);
      Mm::template issue_scores<kLeft>(at_, stage, s);
      sm90::wait_phase(at_.full(stage, kRight), ring_.parity);
      Mm::template issue_scores<kRight>(at_, stage, s);
      Mm::wait(s);
      const bool hides = key < whole.begin || key + kConfig.B_c > whole.end;
      if (hides || args_.softcap != 0.0f) apply_rules(piece, key, hides, s);
      softmax.update(s);
      typename Mm::Weights weights;
      Mm::pack(s, weights);
      sm90::wait_phase(at_.weights_read(), told_ ^ 1);  // those of the block before
      Mm::tell(at_, weights);
      if (at_.lane % 4 == 0) {
        at_.factors()[at_.row()] = softmax.factor[0];
        at_.factors()[at_.row() + 8] = softmax.factor[1];
      }
      ptx::mbarrier_arrive(at_.weights_told());
      rescale(o, softmax.factor[0], softmax.factor[1]);
      add(stage, weights, o, kLeft);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 end = softmax.end(half);
      if (at_.lane % 4 == 0) at_.ends()[at_.row() + half * 8] = end;
    }
  }

  FLASH_DEVICE void compute_right(const Piece& piece, typename Mm::Output& o) {
    const KeyRange keys = piece.keys;
    const Blocks<kConfig> blocks(keys);
    for (int i = 0; i < blocks.n; ++i) {
      const int key = blocks.first + i * kConfig.B_c;
      const int stage = ring_.buffer;
      if (needs_clearing<kConfig>(keys, key)) {
        sm90::wait_phase(at_.full(stage, kLeft), ring_.parity);
        sm90::wait_phase(at_.full(stage, kRight), ring_.parity);
        clear<kConfig>(at_, stage, keys, key);
        ptx::mbarrier_arrive(at_.cleared());
      }
      sm90::wait_phase(at_.weights_told(), told_);
      typename Mm::Weights weights;
      Mm::read(at_, weights);
      const float upper = at_.factors()[at_.row()];
      const float lower = at_.factors()[at_.row() + 8];
      ptx::mbarrier_arrive(at_.weights_read());
      sm90::wait_phase(at_.full(stage, kRight), ring_.parity);  // it is
      rescale(o, upper, lower);
      add(stage, weights, o, kRight);
    }
  }

  // Adds this group's columns of a block, and gives back its half of the stage.
  FLASH_DEVICE void add(int stage, const typename Mm::Weights& weights, typename Mm::Output& o,
                        Half half) {
    Mm::issue_output(at_, stage, weights, o);
    Mm::wait(o);
    if (at_.lane == 0) ptx::mbarrier_arrive(at_.empty(stage, half));
    ring_.advance();
    told_ ^= 1;
  }

  // The soft cap, and what is not seen of the block that begins with `key`.
  FLASH_DEVICE void apply_rules(const Piece& piece, int key, bool hides,
                                typename Mm::Scores& s) const {
    using Rules = sm80_serve::ScoreRules<kServing>;
    constexpr int kSlice = kServing.slice_keys();
    const Rules rules(args_, piece.tile, piece.keys, at_.warp % 4 * 16, at_.lane);
    auto& slices = reinterpret_cast<typename Rules::Scores(&)[kConfig.B_c / kSlice]>(s);
#pragma unroll
    for (int i = 0; i < kConfig.B_c / kSlice; ++i) {
      if (args_.softcap != 0.0f) rules.cap_scores(slices[i]);
      if (hides) rules.hide(slices[i], key + i * kSlice);
    }
  }

  const ServeArgs& args_;
  const sm80_serve::Abreast abreast_;
  const Place<kConfig>& at_;
  sm90::RingPosition<kConfig.n_stages> ring_;
  // Parities: of the next block's weights, and of the next that is cleared.
  uint32_t told_ = 0;
  uint32_t cleared_ = 0;
};

}  // namespace flash::sm90_serve_mla
