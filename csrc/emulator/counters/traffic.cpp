// How many wavefronts and sectors an access of a warp needs.
#include "traffic.h"

#include <algorithm>

#include "memory.h"

namespace emulator {

namespace {

constexpr u32 kBanks = 32;
constexpr u32 kBankBytes = 4;
constexpr u32 kSectorBytes = 32;

// The words that one wavefront would serve if no two of them shared a bank.
class Wavefront {
 public:
  void add(u64 word, Repeats repeats) {
    u64* const end = words_ + n_words_;
    if (repeats == Repeats::kMerge && std::find(words_, end, word) != end) return;
    words_[n_words_++] = word;
    passes_ = std::max(passes_, ++in_bank_[word % kBanks]);
  }
  u32 passes() const { return passes_; }

 private:
  u64 words_[kBanks];
  u32 n_words_ = 0;
  u32 in_bank_[kBanks] = {};
  u32 passes_ = 0;
};

// GPUs allocate on 256-byte boundaries, the host does not: sectors count from the range's start.
u64 origin_of(u64 address, const RangeTable& ranges) {
  for (u32 i = 0; i < ranges.count; ++i) {
    if (address - ranges.ranges[i].begin < ranges.ranges[i].bytes) return ranges.ranges[i].begin;
  }
  return 0;
}

}  // namespace

Traffic::Traffic(const TrafficRequest& request, u32 n_threads)
    : request_(request),
      lane_executions_(u64{request.n_blocks} * n_threads),
      executions_(request.n_blocks),
      accesses_(request.n_accesses),
      sites_(u64{2} * request.n_accesses * ((n_threads + kWarpSize - 1) / kWarpSize)) {}

void Traffic::access(Lane* lane, u32 access, u32 occurrence, u64 address, u32 bytes,
                     Repeats repeats) {
  if (bytes == 0 || (address & kLocalWindow) != 0) return;
  const bool shared = (address & kSharedWindow) != 0;
  const Warp& warp = *lane->warp;
  std::vector<Group>& groups = site(warp, access, shared);
  if (occurrence >= groups.size()) groups.resize(occurrence + 1);
  Group& group = groups[occurrence];
  group.lanes |= 1u << lane->lane_id;
  group.repeats = repeats;
  group.bytes[lane->lane_id] = u8(bytes);
  group.addresses[lane->lane_id] = shared ? address & ~kSharedWindow : address;
}

// 64-bit accesses go by half warps, 128-bit ones (and the rows of ldmatrix) by quarters.
void Traffic::count_shared(const Group& group, AccessCounts& counts) {
  const u32 bytes = group.bytes[__builtin_ctz(group.lanes)];
  const u32 step = std::min(kWarpSize, kBanks * kBankBytes / bytes);
  for (u32 first = 0; first < kWarpSize; first += step) {
    Wavefront wavefront;
    for (u32 lane = first; lane < first + step; ++lane) {
      if ((group.lanes >> lane & 1) == 0) continue;
      const u64 end = group.addresses[lane] + bytes;
      for (u64 word = group.addresses[lane] / kBankBytes; word * kBankBytes < end; ++word) {
        wavefront.add(word, group.repeats);
      }
    }
    counts.wavefronts += wavefront.passes();
    counts.ideal_wavefronts += wavefront.passes() != 0;
  }
}

void Traffic::count_global(const Group& group, const RangeTable& ranges, AccessCounts& counts) {
  struct Piece {
    u64 begin, end;
  } pieces[kWarpSize];
  u32 n_pieces = 0;
  const u64 origin = origin_of(group.addresses[__builtin_ctz(group.lanes)], ranges);
  for (u32 lanes = group.lanes; lanes != 0; lanes &= lanes - 1) {
    const u32 lane = u32(__builtin_ctz(lanes));
    const u64 begin = group.addresses[lane] - origin;
    pieces[n_pieces++] = {begin, begin + group.bytes[lane]};
  }
  // Accesses are aligned, so pieces overlap only where they begin together; the longest comes last.
  std::sort(pieces, pieces + n_pieces, [](const Piece& a, const Piece& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  u64 covered = pieces[0].begin;                     // bytes before this are counted
  u64 next_sector = pieces[0].begin / kSectorBytes;  // sectors before this are counted
  u64 bytes = 0;
  for (u32 i = 0; i < n_pieces; ++i) {
    const Piece& piece = pieces[i];
    bytes += piece.end - std::max(piece.begin, covered);
    covered = piece.end;
    const u64 sector = std::max(next_sector, piece.begin / kSectorBytes);
    next_sector = (piece.end + kSectorBytes - 1) / kSectorBytes;
    counts.sectors += next_sector - std::min(sector, next_sector);
  }
  counts.ideal_sectors += (bytes + kSectorBytes - 1) / kSectorBytes;
}

void Traffic::flush(const Warp& warp) {
  for (u32 access = 0; access < request_.n_accesses; ++access) {
    for (bool shared : {false, true}) {
      std::vector<Group>& groups = site(warp, access, shared);
      for (const Group& group : groups) {
        if (group.lanes == 0) continue;
        if (shared) count_shared(group, accesses_[access]);
        if (!shared) count_global(group, warp.block->ranges, accesses_[access]);
      }
      groups.clear();
    }
  }
  for (u32 block = 0; block < request_.n_blocks; ++block) {
    u32 executions = 0;
    for (u32 lanes = warp.existing; lanes != 0; lanes &= lanes - 1) {
      u32& own = warp.lanes[__builtin_ctz(lanes)].executions[block];
      executions = std::max(executions, own);
      own = 0;
    }
    executions_[block] += executions;
  }
}

void Traffic::add_to_request() const {
  for (u32 i = 0; i < request_.n_blocks; ++i) request_.executions[i] += executions_[i];
  for (u32 i = 0; i < request_.n_accesses; ++i) {
    AccessCounts& total = request_.accesses[i];
    total.wavefronts += accesses_[i].wavefronts;
    total.ideal_wavefronts += accesses_[i].ideal_wavefronts;
    total.sectors += accesses_[i].sectors;
    total.ideal_sectors += accesses_[i].ideal_sectors;
  }
}

}  // namespace emulator
