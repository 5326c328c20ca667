// Rows of a tile in shared memory that become zeros.
#pragma once

#include "flash/ptx/memory.cuh"

namespace flash::sm90_serve {

// Rows [from, to) of a tile of kRows, in each of its kChunks, by threads of which this is one of
// `n_threads`.
template <int kRowBytes, int kChunks, int kRows>
FLASH_DEVICE void clear_rows(uint32_t tile, int from, int to, int thread, int n_threads) {
  const ptx::Vector16 zeros = {};
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const uint32_t end = tile + (chunk * kRows + to) * kRowBytes;
    uint32_t at = tile + (chunk * kRows + from) * kRowBytes + 16 * thread;
    for (; at < end; at += 16 * n_threads) ptx::st_shared_16<0>(at, zeros);
  }
}

}  // namespace flash::sm90_serve
