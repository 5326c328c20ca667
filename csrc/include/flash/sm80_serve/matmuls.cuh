// The two matmuls of a warp's rows with its slice of a block: the forward pass' where heads are
// narrow, and by chunks of columns where they are wide.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/sm80/forward/matmuls.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve {

// As sm80::Matmuls, of heads of any number of chunks: those that the call's heads have not are left
// out. Queries are read from shared memory for every block, since their registers are the output's.
template <AmpereServeKernelConfig kConfig>
struct ChunkedMatmuls {
  using Tile = SharedTile<kConfig.d_head, true>;
  using Chunk = sm80::Matmuls<kConfig.matmuls(), Tile>;
  using Lane = typename Chunk::Lane;
  static constexpr int kColumns = kConfig.columns_at_once();
  static constexpr int kChunkBytes = kColumns * bytes_of(kConfig.dtype);
  static_assert(kChunkBytes % Tile::kSwizzleSpanBytes == 0, "addresses are combined by XOR");

  static constexpr int kDTiles = kConfig.d_head / 16;
  static constexpr int kKOffset = Chunk::kKOffset;
  using Scores = typename Chunk::Scores;
  using Output = float[1][2 * kDTiles][4];

  struct QOperand {
    uint32_t base;  // as the lane's address
    FLASH_DEVICE void prologue(const Lane& lane) { base = lane.base; }
  };

  int d_head;
  int d_v;

  FLASH_DEVICE static void clear(Output& o) { Chunk::clear(o); }

  FLASH_DEVICE void scores(Scores& s, const QOperand& q, const Lane&, const Lane& k_lane) const {
    Chunk::clear(s);
    for_chunks(d_head, [&](auto chunk) {
      const Lane q_lane = at(k_lane, q.base + chunk * kChunkBytes);
      typename Chunk::QOperand operand;
      operand.prologue(q_lane);
      Chunk::add_scores(s, operand, q_lane, at(k_lane, k_lane.base + chunk * kChunkBytes));
    });
  }

  FLASH_DEVICE void accumulate(Output& o, const Scores& p, const Lane& v_lane) const {
    // From where a chunk's values would lie to where the slice's do.
    constexpr int kBehind = kConfig.slice_bytes() - (Chunk::kVOffset - Chunk::kKOffset);
    for_chunks(d_v, [&](auto chunk) {
      auto& columns = reinterpret_cast<typename Chunk::Output&>(o[0][chunk * 2 * Chunk::kDTiles]);
      Chunk::accumulate(columns, p, at(v_lane, v_lane.base + kBehind + chunk * kChunkBytes));
    });
  }

 private:
  // Calls body(chunk) for those of a head of so many columns.
  template <typename Body>
  FLASH_DEVICE static void for_chunks(int n_columns, const Body& body) {
    static_for<0, kConfig.d_head / kColumns>([&](auto chunk) {
      if (chunk * kColumns < n_columns) body(chunk);
    });
  }
  FLASH_DEVICE static Lane at(Lane lane, uint32_t base) {
    lane.base = base;
    return lane;
  }
};

// Of a kernel's heads. (A function, since there is no <type_traits> where NVRTC compiles.)
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE auto make_matmuls(const ServeArgs& args) {
  if constexpr (kConfig.is_wide()) {
    return ChunkedMatmuls<kConfig>{args.d_head, args.d_v};
  } else {
    return sm80::Matmuls<kConfig.matmuls()>{};
  }
}

}  // namespace flash::sm80_serve
