// Which thread block of a backward pass meets which scores of which sequence, and where its rows
// lie: tile/sequence_work.cuh.
#include "flash/tile/gradient_work.cuh"
#include "flash/tile/sequence_work.cuh"

using namespace flash;

template <bool kKeys, bool kApart>
struct Blocks {
  static constexpr bool kOwnsKeys = kKeys;
  static constexpr bool kStaggers = kApart;
  static constexpr bool kInOrder = false;
  static constexpr int kRows = 32;
  static constexpr int kColumns = 16;
};

// met[query head][query][key] of all sequences counts how often a block meets the score, and sees
// it: 1 thread for each of its rows. starts[sequence] = {elements of q, k and v before it, RowStats
// before it}.
template <bool kOwnsKeys, bool kStaggers>
__device__ void meet(const BackwardArgs& args, int* met, int64_t* starts) {
  using L = Blocks<kOwnsKeys, kStaggers>;
  const SequenceBlocks<L::kRows> blocks{kOwnsKeys ? args.cu_seqlens_k : args.cu_seqlens_q,
                                        kOwnsKeys ? args.seqlen_k : args.seqlen_q, args.batch};
  const int block = static_cast<int>(blockIdx.x % blocks.of_head());
  const int sequence = blocks.sequence_of(block);
  if (sequence < 0) return;
  const SequenceArgs own(args, sequence);
  if (threadIdx.x == 0 && met == nullptr && block == blocks.before(sequence)) {
    const auto elements = [](const void* a, const void* b) {
      return (static_cast<const char*>(a) - static_cast<const char*>(b)) / 2;
    };
    starts[sequence * 4] = elements(own.q, args.q);
    starts[sequence * 4 + 1] = elements(own.k, args.k);
    starts[sequence * 4 + 2] = elements(own.d_v, args.d_v);
    starts[sequence * 4 + 3] = (own.row_stats - args.row_stats) / 2;
  }
  const int first_row = (block - blocks.before(sequence)) * L::kRows;
  if (met == nullptr || first_row >= (kOwnsKeys ? own.seqlen_k : own.seqlen_q)) return;
  const SequenceWork<L> work(own, static_cast<int>(blockIdx.x / blocks.of_head()), first_row);
  const bool packed = args.cu_seqlens_q != nullptr;
  const int q_start = packed ? args.cu_seqlens_q[sequence] : sequence * args.seqlen_q;
  const int k_start = packed ? args.cu_seqlens_k[sequence] : sequence * args.seqlen_k;
  const int64_t n_queries = packed ? args.seqlen_q : args.batch * args.seqlen_q;
  const int64_t n_keys = packed ? args.seqlen_k : args.batch * args.seqlen_k;
  const int row = static_cast<int>(threadIdx.x);
  Place place{work.first, 0};
  const int n_steps = work.n_steps();
  for (int step = 0; step < n_steps; ++step) {
    const int first_column = place.block * L::kColumns;
    const SequenceMask<kOwnsKeys, L::kRows, L::kColumns> mask(own, work.first_row, first_column);
    const auto seen = mask.seen(own, row, 0);
    const int64_t own_head = work.own_head();
    const int64_t head = kOwnsKeys ? own_head * work.n_heads + place.head : own_head;
    for (int column = 0; column < L::kColumns; ++column) {
      const int other = first_column + column;
      const int query = kOwnsKeys ? other : work.first_row + row;
      const int key = kOwnsKeys ? work.first_row + row : other;
      if (row >= work.n_rows || query >= own.seqlen_q || key >= own.seqlen_k) continue;
      const bool counts = !mask.hides_something || seen.at(0, column);
      met[(head * n_queries + q_start + query) * n_keys + k_start + key] += counts ? 1 : 0;
    }
    place.advance(work);
  }
}

#define KERNEL(NAME, OWNS_KEYS, STAGGERS)                                              \
  extern "C" __global__ void NAME(const __grid_constant__ BackwardArgs args, int* met, \
                                  int64_t* starts) {                                   \
    meet<OWNS_KEYS, STAGGERS>(args, met, starts);                                      \
  }

KERNEL(keys, true, false)
KERNEL(keys_apart, true, true)
KERNEL(queries, false, false)

// blocks = {of a sequence of equal lengths, of a head}, of 32 rows.
extern "C" __global__ void count(const __grid_constant__ BackwardArgs args, int* blocks) {
  const SequenceBlocks<32> found{args.cu_seqlens_q, args.seqlen_q, args.batch};
  blocks[0] = found.of_sequence();
  blocks[1] = found.of_head();
}
