#include "warpgroup.h"

#include <string.h>

#include <algorithm>

#include "collective.h"
#include "matrix_descriptor.h"
#include "memory.h"
#include "sm90.h"

namespace emulator {

namespace {

constexpr u32 kWarpRows = 16;
using ull = unsigned long long;

// The 16 bytes of an operand in shared memory.
const u16* piece_of(Lane* lane, const MatrixDescriptor& matrix, bool transposed, u32 major,
                    u32 minor, u32 site) {
  u32 address = matrix.piece(transposed, major, minor);
  u32 offset = address - kSharedBase;
  if (u64{offset} + 16 > lane->shared_bytes) {
    fail(lane, ErrorKind::kOutOfBounds, site,
         "wgmma reads 16 bytes at byte %lld of %u bytes of shared memory",
         static_cast<long long>(address) - kSharedBase, lane->shared_bytes);
  }
  return reinterpret_cast<const u16*>(lane->shared + offset);
}

// Calls visit(major, minor) for the pieces of rows [first, first + rows) of M or N.
template <typename Visit>
void for_each_piece(bool transposed, u32 first, u32 rows, Visit visit) {
  const u32 majors = transposed ? kDepth : rows;
  const u32 minors = transposed ? rows / 8 : kDepth / 8;
  for (u32 major = 0; major < majors; ++major) {
    for (u32 minor = 0; minor < minors; ++minor) {
      visit(transposed ? major : first + major, transposed ? first / 8 + minor : minor);
    }
  }
}

// A factor that is negated, for 1 or -1.
u32 sign_bit(s8 sign) { return sign < 0 ? 0x8000 : 0; }

void gather_a(Warp* warp, const Wgmma& wgmma, u32 index, Warpgroups& groups, FactorsA& a) {
  const u32 sign = sign_bit(wgmma.form.a_sign);
  if (wgmma.form.a_in_registers) {
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      u32 registers[4];
      const u32* own = groups.queue(&warp->lanes[lane]).uncommitted[index].a;
      for (u32 i = 0; i < 4; ++i) registers[i] = own[i] ^ (sign << 16 | sign);
      put_a(wgmma.form.type, lane, registers, a);
    }
  } else {
    const MatrixDescriptor matrix(wgmma.a_descriptor);
    const u32 first = warp->index % 4 * kWarpRows;
    const bool transposed = wgmma.form.a_transposed;
    for_each_piece(transposed, first, kWarpRows, [&](u32 major, u32 minor) {
      const u16* piece = piece_of(warp->lanes, matrix, transposed, major, minor, wgmma.site);
      for (u32 i = 0; i < 8; ++i) {
        u32 row = transposed ? 8 * minor + i - first : major - first;
        a.bits[row][transposed ? major : 8 * minor + i] = piece[i] ^ sign;
      }
    });
  }
  finish_factors(wgmma.form.type, a);
}

void gather_b(Warp* warp, const Wgmma& wgmma, FactorsB& b) {
  const MatrixDescriptor matrix(wgmma.b);
  const bool transposed = wgmma.form.b_transposed;
  const u32 sign = sign_bit(wgmma.form.b_sign);
  for_each_piece(transposed, 0, wgmma.form.columns, [&](u32 major, u32 minor) {
    const u16* piece = piece_of(warp->lanes, matrix, transposed, major, minor, wgmma.site);
    for (u32 i = 0; i < 8; ++i) {
      u32 k = transposed ? major : 8 * minor + i;
      u32 column = transposed ? 8 * minor + i : major;
      b.bits[k][column] = piece[i] ^ sign;
    }
  });
  finish_factors(wgmma.form.type, b, wgmma.form.columns);
}

void check_descriptor(Lane* lane, u64 bits, u32 site) {
  if (MatrixDescriptor(bits).base_offset == 0) return;
  fail(
      lane, ErrorKind::kInvalidOperand, site,
      "matrix descriptor 0x%llx has a base offset; the emulator supports tiles at multiples of the "
      "swizzle's repetition (1024, 512 or 256 bytes), which need none",
      ull(bits));
}

}  // namespace

void Warpgroups::start_block() {
  for (WgmmaQueue& queue : queues_) {
    queue.uncommitted.clear();
    queue.notes.clear();
    queue.commits = queue.waited = queue.fences = 0;
  }
  for (Group& group : groups_) {
    group.agent = 0;
    std::fill(group.executed, group.executed + 4, 0);
    std::fill(group.committed, group.committed + 4, 0);
    std::fill(group.waiting, group.waiting + 4, 0);
    for (Step& step : group.steps) step.number = 0;
  }
}

// Lanes have committed: they must agree on what.
void Warpgroups::check_alike(Warp* warp) {
  const std::vector<Wgmma>& first = queue(&warp->lanes[0]).uncommitted;
  for (u32 index = 1; index < kWarpSize; ++index) {
    Lane* lane = &warp->lanes[index];
    const std::vector<Wgmma>& own = queue(lane).uncommitted;
    bool alike = own.size() == first.size();
    for (u64 i = 0; alike && i < own.size(); ++i) {
      alike = own[i].site == first[i].site && own[i].b == first[i].b &&
              own[i].accumulates == first[i].accumulates &&
              (own[i].form.a_in_registers || own[i].a_descriptor == first[i].a_descriptor);
    }
    if (alike) continue;
    fail(lane, ErrorKind::kDivergentCollective, lane->wait_site,
         "the lane has issued other wgmma, or with other operands, than lane 0 of its warp");
  }
}

// B of a warp's next matmul: the four warps of a warpgroup use the same.
const FactorsB& Warpgroups::factors_of(Warp* warp, const Wgmma& wgmma) {
  Group& group = groups_[warp->index / 4];
  const u64 number = ++group.executed[warp->index % 4];
  const u64 a = wgmma.form.a_in_registers ? 0 : wgmma.a_descriptor;
  Step& step = group.steps[number % kKept];
  if (step.number > number) {
    gather_b(warp, wgmma, spare_);
    return spare_;
  }
  if (step.number < number) {
    if (!step.factors) step.factors = std::make_unique<FactorsB>();
    step = {number, wgmma.site, a, wgmma.b, wgmma.accumulates, std::move(step.factors)};
    gather_b(warp, wgmma, *step.factors);
  } else if (step.site != wgmma.site || step.a != a || step.b != wgmma.b ||
             step.accumulates != wgmma.accumulates) {
    fail(warp->lanes, ErrorKind::kDivergentCollective, wgmma.site,
         "warp %u of warpgroup %u issues another wgmma than a warp before it, or with other "
         "operands: that one at {site:%u}",
         warp->index % 4, warp->index / 4, step.site);
  }
  return *step.factors;
}

u32 Warpgroups::agent_of(Lane* lane, u32 site) {
  Group& group = groups_[lane->warp_id / 4];
  if (group.agent == 0) group.agent = lane->block->sm90->knowledge.new_agent() + 1;
  if (group.agent > kMaxAgents) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "the emulator follows mbarriers, warpgroups and threads with bulk stores, %u in all",
         kMaxAgents);
  }
  return group.agent - 1;
}

// What the 16 rows of a warp need of shared memory is read from now on, as the lanes of `observers`
// know it.
void Warpgroups::track_reads(Lane* lane, const Observers& observers, const Wgmma& wgmma) {
  Sm90* sm90 = lane->block->sm90;
  const u32 id =
      sm90->shadow.begin({AsyncKind::kWgmma, agent_of(lane, wgmma.site), queue(lane).commits + 1,
                          lane->warp_id * kWarpSize, wgmma.site});
  auto track = [&](u64 bits, bool transposed, u32 first, u32 rows) {
    const MatrixDescriptor matrix(bits);
    for_each_piece(transposed, first, rows, [&](u32 major, u32 minor) {
      piece_of(lane, matrix, transposed, major, minor, wgmma.site);
      sm90->shadow.read(id, observers, matrix.piece(transposed, major, minor) - kSharedBase, 16);
    });
  };
  if (!wgmma.form.a_in_registers) {
    track(wgmma.a_descriptor, wgmma.form.a_transposed, lane->warp_id % 4 * kWarpRows, kWarpRows);
  }
  track(wgmma.b, wgmma.form.b_transposed, 0, wgmma.form.columns);
}

// A wgmma may read its operands as soon as it is issued, by its first lane here. (The commit looks
// once more, as all lanes know it.)
void Warpgroups::track_issue(Lane* lane, const Wgmma& wgmma) {
  if (!lane->block->sm90->shadow.tracked()) return;
  track_reads(lane, Observers(lane), wgmma);
}

void Warpgroups::track_commit(Warp* warp, const Wgmma& wgmma) {
  if (!warp->block->sm90->shadow.tracked()) return;
  Observers observers;
  for (u32 lane = 0; lane < kWarpSize; ++lane) observers.add(&warp->lanes[lane]);
  track_reads(warp->lanes, observers, wgmma);
}

void Warpgroups::load_accumulators(Warp* warp, u32 index) {
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    const Wgmma& own = queue(&warp->lanes[lane]).uncommitted[index];
    for_each_accumulator(own.form.columns, lane, c_[0],
                         [&](u32 i, f32* pair) { memcpy(pair, own.d + i, 2 * sizeof(f32)); });
  }
}

void Warpgroups::store_accumulators(Warp* warp, u32 index) {
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    const Wgmma& own = queue(&warp->lanes[lane]).uncommitted[index];
    for_each_accumulator(own.form.columns, lane, c_[0],
                         [&](u32 i, f32* pair) { memcpy(own.d + i, pair, 2 * sizeof(f32)); });
  }
}

void Warpgroups::execute(Warp* warp) {
  check_alike(warp);
  agent_of(warp->lanes, warp->lanes->wait_site);
  const std::vector<Wgmma>& items = queue(warp->lanes).uncommitted;
  auto continues = [&](u64 index) {  // with the accumulators of the one before
    return index != 0 && index < items.size() && items[index].d == items[index - 1].d &&
           items[index].form.columns == items[index - 1].form.columns;
  };
  for (u32 index = 0; index < items.size(); ++index) {
    const Wgmma& wgmma = items[index];
    warp->block->counts.mma_instructions += 1;
    if (!wgmma.form.a_in_registers) check_descriptor(warp->lanes, wgmma.a_descriptor, wgmma.site);
    check_descriptor(warp->lanes, wgmma.b, wgmma.site);
    track_commit(warp, wgmma);
    if (!wgmma.accumulates) {
      memset(c_, 0, sizeof c_);
    } else if (!continues(index)) {
      load_accumulators(warp, index);
    }
    gather_a(warp, wgmma, index, *this, a_);
    multiply_add(wgmma.form.type, a_, factors_of(warp, wgmma), wgmma.form.columns, c_[0]);
    if (!continues(index + 1)) store_accumulators(warp, index);
  }
}

void Warpgroups::commit(Warp* warp) {
  execute(warp);
  Group& group = groups_[warp->index / 4];
  group.committed[warp->index % 4] += 1;
  for (u32 other = 0; other < 4; ++other) {
    if (group.waiting[other] == 0) continue;
    make_runnable(warp - warp->index % 4 + other, group.waiting[other]);
    group.waiting[other] = 0;
  }
}

// Until all four warps have committed so many groups.
void Warpgroups::await_all(Lane* lane, u32 n_groups, u32 site) {
  Group& group = groups_[lane->warp_id / 4];
  while (*std::min_element(group.committed, group.committed + 4) < n_groups) {
    lane->wait = Wait::kWgmma;
    lane->wait_site = site;
    lane->wait_detail = ~0u;
    group.waiting[lane->warp_id % 4] |= 1u << lane->lane_id;
    emulator::wait(lane);
  }
}

// A group is complete when all four warps have issued it: who waits for it knows that none of them
// reads shared memory for it any more.
void Warpgroups::wait(Lane* lane, u32 pending_groups, u32 site) {
  WgmmaQueue& own = queue(lane);
  if (own.commits <= pending_groups) return;
  const u32 wanted = own.commits - pending_groups;
  await_all(lane, wanted, site);
  own.waited = std::max(own.waited, wanted);
  const Group& group = groups_[lane->warp_id / 4];
  lane->block->sm90->knowledge.learn(lane, group.agent - 1, own.waited);
}

void Warpgroups::exit_lane(Lane* lane) {
  const WgmmaQueue& own = queue(lane);
  if (own.uncommitted.empty() && own.waited == own.commits) return;
  u32 site = own.uncommitted.empty() ? lane->wait_site : own.uncommitted.back().site;
  fail(lane, ErrorKind::kWgmma, site,
       "the thread exits while wgmma are in flight: %zu not committed, %u groups not waited for",
       own.uncommitted.size(), own.commits - own.waited);
}

void Warpgroups::finish_block(Block* block) {
  for (u32 index = 0; index < groups_.size(); ++index) {
    const u64* executed = groups_[index].executed;
    const u64* other =
        std::find_if(executed + 1, executed + 4, [&](u64 count) { return count != executed[0]; });
    if (other == executed + 4) continue;
    Lane* lane = &block->lanes[index * 128];
    record_error(lane, ErrorKind::kDivergentCollective, groups_[index].steps[1].site,
                 "warp 0 of warpgroup %u has executed %llu wgmma, warp %u of it %llu", index,
                 ull(executed[0]), u32(other - executed), ull(*other));
    return;
  }
}

}  // namespace emulator
