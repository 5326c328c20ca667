// Tiles of packed sequences, whose lengths the device alone knows.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash {

// Of `count` sequences, one at least, the last whose tiles begin at or before `place`, or -1: a
// search by all lanes of a warp, 32 places at a time. `tiles_before` (sequence): does not fall.
template <typename Place, typename TilesBefore>
FLASH_DEVICE int last_begun(int count, Place place, int lane, const TilesBefore& tiles_before) {
  int first = 0;
  while (count > 0) {
    const int step = (count + 31) / 32;
    const bool begins = lane * step < count && tiles_before(first + lane * step) <= place;
    const int n_begun = __popc(__ballot_sync(0xffffffffu, begins));
    if (n_begun == 0) return -1;
    first += (n_begun - 1) * step;
    count = step == 1 ? 0 : min(step, count - (n_begun - 1) * step);
  }
  return first;
}

}  // namespace flash
