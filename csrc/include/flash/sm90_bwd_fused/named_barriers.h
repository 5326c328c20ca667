// The fused kernel's named barriers; 0 is __syncthreads.
#pragma once

namespace flash::sm90_bwd_fused {

// kTurn + g: the turn of group g; of split groups, that group 1 begins. kRoom + 2 b + g: the copy
// engine has read the sums of dQ that group g had staged in buffer b. kGroup + g: all warps of
// group g have come so far. kParts: those of both. kSender + s: all lanes of sender s.
enum NamedBarrier : int { kTurn = 2, kRoom = 4, kGroup = 8, kParts = 10, kSender = 11 };

}  // namespace flash::sm90_bwd_fused
