// Asynchronous copies from global to shared memory (PTX ISA 9.7.9.25.3, sm_80 and later).
#pragma once

#include "flash/ptx/cache_policy.cuh"
#include "flash/ptx/device.cuh"

namespace flash::ptx {

// cp.async.cg.shared.global.L2::128B [dst + kDstOffset], [src], 16
// Bypasses L1 (.cg). The bytes may be read only after this thread's wait_group for the group of
// this copy, and by other threads only after a barrier behind that wait.
template <int kDstOffset>
FLASH_DEVICE void cp_async_16(uint32_t dst, const void* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %2], [%1], 16;\n"
               :
               : "r"(dst), "l"(src), "n"(kDstOffset)
               : "memory");
}

// cp.async.ca.shared.global [dst + kDstOffset], [src], 16: as above, but kept in L1 too (.ca), and
// L2 fetches no more than was asked for.
template <int kDstOffset>
FLASH_DEVICE void cp_async_ca_16(uint32_t dst, const void* src) {
  asm volatile("cp.async.ca.shared.global [%0 + %2], [%1], 16;\n"
               :
               : "r"(dst), "l"(src), "n"(kDstOffset)
               : "memory");
}

// cp.async.cg.shared.global.L2::128B [dst + kDstOffset], [src], 16, src_bytes
// Reads src_bytes (0 to 16) and fills up with zeros; with 0 nothing is read, so src may point
// anywhere.
template <int kDstOffset>
FLASH_DEVICE void cp_async_16_zero_fill(uint32_t dst, const void* src, uint32_t src_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %2], [%1], 16, %3;\n"
               :
               : "r"(dst), "l"(src), "n"(kDstOffset), "r"(src_bytes)
               : "memory");
}

// cp.async.cg.shared.global.L2::cache_hint.L2::128B [dst + kDstOffset], [src], 16, src_bytes, ...
// As above, of what is read once: by its policy, L2 evicts it before anything else.
template <int kDstOffset>
FLASH_DEVICE void cp_async_16_zero_fill_once(uint32_t dst, const void* src, uint32_t src_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0 + %2], [%1], 16, %3, %4;\n"
               :
               : "r"(dst), "l"(src), "n"(kDstOffset), "r"(src_bytes), "l"(kEvictFirst)
               : "memory");
}

// cp.async.ca.shared.global [dst + kDstOffset], [src], 8, src_bytes: as above, 8 bytes.
template <int kDstOffset>
FLASH_DEVICE void cp_async_8_zero_fill(uint32_t dst, const void* src, uint32_t src_bytes) {
  asm volatile("cp.async.ca.shared.global [%0 + %2], [%1], 8, %3;\n"
               :
               : "r"(dst), "l"(src), "n"(kDstOffset), "r"(src_bytes)
               : "memory");
}

// cp.async.commit_group: closes the group of this thread's copies since the last commit.
FLASH_DEVICE void cp_async_commit_group() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// cp.async.wait_group kPending: blocks until at most kPending of this thread's groups are in
// flight.
template <int kPending>
FLASH_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace flash::ptx
