// mma.sync: fragments to matrices and back; the sums are the tensor core's.
#include <string.h>

#include "collective.h"
#include "device_calls.h"
#include "tensor_core.h"

namespace emulator {

namespace {

struct Operands {
  MmaType type;
  u32 count;
  MmaOperands* matrices;
};

// Consecutive instructions with the same A are one product, with their B and C side by side.
class Product {
 public:
  void run(const Operands* const* lanes, u32 first, u32 end) {
    const MmaType type = lanes[0]->type;
    const u32 columns = kBlockColumns * (end - first);
    fill(type, columns);
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      MmaOperands* own = lanes[lane]->matrices + first;
      put_a(type, lane, own->a, a_);
      for (u32 block = 0; block < end - first; ++block) {
        const u32 column = kBlockColumns * block + lane / 4;
        for (u32 i = 0; i < 2; ++i) {
          for_each_factor(type, lane % 4, i, own[block].b[i],
                          [&](u32 k, u32 bits) { b_.bits[k][column] = bits; });
        }
      }
      for_each_accumulator(columns, lane, c_[0],
                           [&](u32 i, f32* pair) { memcpy(pair, &own[i / 4].c[i % 4], 8); });
    }
    finish_factors(type, a_);
    finish_factors(type, b_, columns);
    multiply_add(type, a_, b_, columns, c_[0]);
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      MmaOperands* own = lanes[lane]->matrices + first;
      for_each_accumulator(columns, lane, c_[0],
                           [&](u32 i, f32* pair) { memcpy(&own[i / 4].c[i % 4], pair, 8); });
    }
  }

 private:
  // Zeros behind the 8 factors of tf32, and behind an odd number of blocks: the tensor core takes
  // two at a time.
  void fill(MmaType type, u32 columns) {
    if (type == MmaType::kTf32) {
      memset(a_.bits, 0, sizeof a_.bits);
      memset(b_.bits, 0, sizeof b_.bits);
    }
    if (columns % (2 * kBlockColumns) == 0) return;
    for (u32 row = 0; row < 16; ++row) {
      memset(&c_[row][columns], 0, kBlockColumns * sizeof(f32));
      memset(&b_.values[row][columns], 0, kBlockColumns * sizeof(f32));
      memset(&b_.powers[row][columns], 0, kBlockColumns * sizeof(f32));
    }
  }

  FactorsA a_;
  FactorsB b_;
  alignas(64) f32 c_[16][kStride];
};

void execute(Warp* warp, u32) {
  thread_local Product product;  // too large for the stack of a fiber
  const Operands* lanes[kWarpSize];
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    lanes[lane] = static_cast<Operands*>(warp->lanes[lane].operands);
  }
  // All lanes run the same code, so lane 0 tells for all whether A is that of the one before.
  const MmaOperands* matrices = lanes[0]->matrices;
  const u32 count = lanes[0]->count;
  warp->block->counts.mma_instructions += count;
  for (u32 first = 0, end; first < count; first = end) {
    end = first + 1;
    while (end < count && end - first < kMaxColumns / kBlockColumns &&
           matrices[end].a == matrices[first].a) {
      ++end;
    }
    product.run(lanes, first, end);
  }
}

}  // namespace

void mma(Lane* lane, MmaType type, MmaOperands* operands, u32 count, u32 site) {
  Operands own{type, count, operands};
  require_full_warp(lane, Wait::kMma, site);
  meet(lane, Wait::kMma, u32(type), ~0u, site, &own, &execute, SameSite::kRequired);
}

}  // namespace emulator
