// The operands of tile/operand.cuh: what every lane holds of a tile in shared memory.
#include "flash/ptx/memory.cuh"
#include "flash/tile/operand.cuh"

using namespace flash;

constexpr int kRowTiles = 4;
constexpr int kTileOffset = 8192;  // of the second of two tiles

__device__ uint32_t fill_shared(const uint4* image, int n_pieces) {
  extern __shared__ __align__(128) uint4 memory[];
  for (int i = threadIdx.x; i < n_pieces; i += 32) memory[i] = image[i];
  __syncwarp();
  return ptx::shared_address(memory);
}

// out[row tile][column tile][lane][4]
template <typename Tile, MatrixOrder kOrder, bool kTranspose>
__device__ void load_tiles(uint32_t memory, uint32_t* out) {
  const int lane = threadIdx.x;
  constexpr int kColumnTiles = Tile::kChunksPerRow / 2;
  LaneAddress<Tile> address(memory, lane, kOrder);
  static_for<0, kRowTiles * kColumnTiles>([&](auto i) {
    constexpr int kRow = i / kColumnTiles, kColumn = i % kColumnTiles;
    Fragment r;
    if constexpr (kColumn == 1) address.forget();  // changes nothing but what is kept
    address.template load<kTileOffset, kRow, kColumn, kTranspose>(r);
    for (int j = 0; j < 4; ++j) out[(i * 32 + lane) * 4 + j] = r[j];
  });
}

template <typename Tile>
__device__ void load_in_order(uint32_t memory, uint32_t* out, int columns_first, int transpose) {
  constexpr auto kRows = MatrixOrder::kRowsFirst, kColumns = MatrixOrder::kColumnsFirst;
  if (columns_first) {
    transpose ? load_tiles<Tile, kColumns, true>(memory, out)
              : load_tiles<Tile, kColumns, false>(memory, out);
  } else {
    transpose ? load_tiles<Tile, kRows, true>(memory, out)
              : load_tiles<Tile, kRows, false>(memory, out);
  }
}

extern "C" __global__ void tiles(const uint4* image, int n_pieces, uint32_t* out, int d_head,
                                 int swizzled, int columns_first, int transpose) {
  const uint32_t memory = fill_shared(image, n_pieces);
  if (d_head == 64 && swizzled)
    load_in_order<SharedTile<64, true>>(memory, out, columns_first, transpose);
  if (d_head == 64 && !swizzled)
    load_in_order<SharedTile<64, false>>(memory, out, columns_first, transpose);
  if (d_head == 128 && swizzled)
    load_in_order<SharedTile<128, true>>(memory, out, columns_first, transpose);
  if (d_head == 128 && !swizzled)
    load_in_order<SharedTile<128, false>>(memory, out, columns_first, transpose);
}

// Every k-tile of an operand, as the registers hold it when its product is due.
// out[k-tile][outer tile][lane][4]
template <int kOuter, int kKTiles, int kLoad, bool kDouble, bool kKAlongRows>
__device__ void walk(uint32_t memory, uint32_t* out) {
  using Tile = SharedTile<64, true>;
  using Schedule = LoadSchedule<kKTiles, kLoad, kDouble>;
  const int lane = threadIdx.x;
  const LaneAddress<Tile> address(memory, lane, MatrixOrder::kRowsFirst);
  Operand<Tile, kTileOffset, kOuter, Schedule, kKAlongRows> operand;
  operand.prologue(address);
  static_for<0, kKTiles>([&](auto t) {
    operand.template before_mma<t>(address);
    static_for<0, kOuter>([&](auto outer) {
      const Fragment& r = operand.at(t, outer);
      for (int j = 0; j < 4; ++j) out[((t * kOuter + outer) * 32 + lane) * 4 + j] = r[j];
    });
  });
}

template <int kLoad, bool kDouble>
__device__ void walk_along(uint32_t memory, uint32_t* out, int along_rows) {
  along_rows ? walk<4, 4, kLoad, kDouble, true>(memory, out)
             : walk<2, 4, kLoad, kDouble, false>(memory, out);
}

extern "C" __global__ void operands(const uint4* image, int n_pieces, uint32_t* out, int which,
                                    int along_rows) {
  const uint32_t memory = fill_shared(image, n_pieces);
  if (which == 0) walk_along<0, false>(memory, out, along_rows);
  if (which == 1) walk_along<1, false>(memory, out, along_rows);
  if (which == 2) walk_along<1, true>(memory, out, along_rows);
  if (which == 3) walk_along<2, false>(memory, out, along_rows);
  if (which == 4) walk_along<2, true>(memory, out, along_rows);
  if (which == 5) walk_along<4, true>(memory, out, along_rows);
}

// One k-tile alone, into its slot.
extern "C" __global__ void one_k_tile(const uint4* image, int n_pieces, uint32_t* out) {
  using Tile = SharedTile<64, true>;
  const uint32_t memory = fill_shared(image, n_pieces);
  const LaneAddress<Tile> address(memory, threadIdx.x, MatrixOrder::kRowsFirst);
  Operand<Tile, kTileOffset, 2, LoadSchedule<4, 2, false>, false> operand;
  operand.load_k_tile<3>(address);
  for (int outer = 0; outer < 2; ++outer) {
    for (int j = 0; j < 4; ++j) {
      out[(outer * 32 + threadIdx.x) * 4 + j] = operand.fragments[1][outer][j];
    }
  }
}
