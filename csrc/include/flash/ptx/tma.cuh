// Tiles copied between global and shared memory by the copy engine (PTX ISA 9.7.9.27, sm_90 and
// later).
//
// A tensor map (128 bytes, 64-byte aligned, made by the host) holds address, sizes, strides, box
// and swizzle. Elements outside the tensor read as zero, and their bytes count as landed; stores
// skip them. Called by one thread.
#pragma once

#include "flash/ptx/cache_policy.cuh"
#include "flash/ptx/device.cuh"

namespace flash::ptx {

// prefetch.tensormap
FLASH_DEVICE void prefetch_tensormap(const void* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// cp.async.bulk.prefetch.L2.global (PTX ISA 9.7.9.25.4.3): kBytes, a multiple of
// 16, are brought to L2.
template <int kBytes>
FLASH_DEVICE void prefetch_l2(const void* src) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(src), "n"(kBytes) : "memory");
}

// cp.async.bulk.tensor.5d, global to shared: the box at (c0, ..., c4), innermost first. `barrier`
// is told of every byte that lands.
FLASH_DEVICE void tma_load_5d(uint32_t dst, const void* map, uint32_t barrier, int c0, int c1,
                              int c2, int c3, int c4, uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;\n" ::"r"(dst),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(cache_policy)
      : "memory");
}

// The same, .multicast::cluster (sm_90a): to the same place in the thread blocks of the cluster
// whose ranks are set in `blocks`, each of whose barriers there is told. `dst` and `barrier`: this
// thread block's.
FLASH_DEVICE void tma_multicast_5d(uint32_t dst, const void* map, uint32_t barrier, uint16_t blocks,
                                   int c0, int c1, int c2, int c3, int c4, uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3, %9;\n" ::"r"(
          dst),
      "l"(map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "l"(cache_policy)
      : "memory");
}

// cp.async.bulk.tensor.5d, shared to global. The source is read asynchronously: see tma_store_wait.
FLASH_DEVICE void tma_store_5d(const void* map, uint32_t src, int c0, int c1, int c2, int c3,
                               int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
      "[%0, {%2, %3, %4, %5, %6}], [%1];\n" ::"l"(map),
      "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// cp.async.bulk, global to shared: `bytes`, a multiple of 16, between addresses that are. `barrier`
// is told of every byte that lands.
FLASH_DEVICE void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(dst),
      "l"(src), "r"(bytes), "r"(barrier)
      : "memory");
}

// cp.async.bulk, shared to global: `bytes`, a multiple of 16, between addresses that are. As above.
FLASH_DEVICE void bulk_store(void* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(dst), "r"(src),
               "r"(bytes)
               : "memory");
}

// cp.async.bulk.commit_group: closes the group of this thread's stores since the last commit.
FLASH_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }

// cp.async.bulk.wait_group.read kPending: until at most kPending groups of this thread's stores
// still read their source.
template <int kPending>
FLASH_DEVICE void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory");
}

// cp.async.bulk.wait_group kPending: until all but so many have written, too.
template <int kPending>
FLASH_DEVICE void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace flash::ptx
