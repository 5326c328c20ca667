// Where the blocks of a launch of the Hopper family count the tiles that they have taken.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flash::sm90 {

// Makes the current device's counters, all zero. Once per device; not legal while the calling
// thread forbids itself allocations (a capture in "global" mode).
void prepare_tile_counters(int device);

// A counter for the next launch on a stream of the current device. A launch finds it zero and
// leaves it zero, and launches on one stream follow each other, so that every stream has one of its
// own.
//
// Null: the blocks compute fixed shares. While the stream is captured, because a graph may run
// beside later launches on the stream; and for streams in excess of kStreamsWithCounters.
std::int32_t* tile_counter(int device, cudaStream_t stream);

inline constexpr int kStreamsWithCounters = 1024;

}  // namespace flash::sm90
