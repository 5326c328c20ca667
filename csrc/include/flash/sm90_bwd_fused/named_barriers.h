// The fused kernel's named barriers; 0 is __syncthreads.
#pragma once

namespace flash::sm90_bwd_fused {

// kTurn + g: the turn of group g; of split groups, that group 1 begins. kStaged + 2 b + g: group g
// has staged sums of dQ in buffer b. kRoom + 2 b + g: the copy engine has read what was there
// before. kGroup + g: all warps of group g have come so far. kParts: those of both.
enum NamedBarrier : int { kTurn = 2, kStaged = 4, kRoom = 8, kGroup = 12, kParts = 14 };

}  // namespace flash::sm90_bwd_fused
