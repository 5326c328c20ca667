#include "knowledge.h"

#include <algorithm>

#include "block_order.h"
#include "lane.h"

namespace emulator {

// Races::start_block takes all records back, whoever held them.
void Knowledge::start_block() {
  n_agents_ = 0;
  std::fill(steps_, steps_ + kSteps, Step{});
}

template <typename Make>
void Knowledge::take(Lane* lane, Seen* source, u32 agent, u32 tick, Make make) {
  Step* known = std::find_if(steps_, steps_ + kSteps, [&](const Step& step) {
    return step.before == lane->seen && step.source == source && step.agent == agent &&
           step.tick == tick && step.after != nullptr;
  });
  if (known == steps_ + kSteps) {
    Seen* after = make();
    known = &steps_[next_++ % kSteps];
    if (known->after != nullptr) {
      races_->drop(known->before);
      if (known->source) races_->drop(known->source);
      races_->drop(known->after);
    }
    *known = {lane->seen, source, agent, tick, after};
    lane->seen->references += 1;
    if (source) source->references += 1;
  }
  races_->drop(lane->seen);
  lane->seen = known->after;
  lane->seen->references += 1;
}

void Knowledge::acquire(Lane* lane, Seen* source, u32 site) {
  if (races_ == nullptr) return;
  lane->barrier_site = site;
  if (source == nullptr) return;
  take(lane, source, 0, 0, [&] {
    Seen* after = races_->copy_of(lane->seen);
    const u32* other = source->ticks();
    u32* ticks = after->ticks();
    for (u32 i = 0; i < races_->n_ticks(); ++i) ticks[i] = std::max(ticks[i], other[i]);
    after->floor = std::max(after->floor, source->floor);
    if (BlockOrder* order = races_->global->order.get()) {
      after->others = order->merged(after->others, source->others);
    }
    return after;
  });
}

void Knowledge::release(Lane* lane, Seen*& into, const Seen* base, u32 site) {
  if (races_ == nullptr) return;
  if (into == nullptr) into = races_->copy_of(base);
  races_->join(into, *lane);
  lane->clock += 1;
  lane->barrier_site = site;
}

void Knowledge::release_from_afar(Lane* lane, Seen*& into, const Seen* base, u32 site) {
  if (races_ == nullptr) return;
  if (into == nullptr) into = races_->copy_of(base);
  races_->join_neighbour(into, *lane);
  lane->clock += 1;
  lane->barrier_site = site;
}

void Knowledge::release_operations_from_afar(const Lane* lane, Seen*& into,
                                             const Seen* base) const {
  if (races_ == nullptr) return;
  if (into == nullptr) into = races_->copy_of(base);
  races_->join_neighbour_agents(into, *lane);
}

void Knowledge::learn(Lane* lane, u32 agent, u32 tick) {
  if (races_ == nullptr || knows(lane->seen, agent, tick)) return;
  take(lane, nullptr, agent, tick, [&] {
    Seen* after = races_->copy_of(lane->seen);
    set_tick(after, agent, tick);
    return after;
  });
}

}  // namespace emulator
