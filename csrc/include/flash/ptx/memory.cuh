// Ordinary loads and stores by 32-bit shared-memory address or global pointer, 4 and 16 bytes wide.
#pragma once

#include "flash/ptx/device.cuh"

// By this name in PTX, too.
extern "C" {
extern __shared__ __align__(1024) char flash_shared_memory[];
}

namespace flash::ptx {

struct Vector16 {
  uint32_t word[4];
};

// cvta.to.shared: the 32-bit address that shared-memory instructions take
FLASH_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Where the shared memory begins that the launch asks for.
FLASH_DEVICE uint32_t dynamic_shared_address() { return shared_address(flash_shared_memory); }

// ld.global.v4.b32
FLASH_DEVICE Vector16 ld_global_16(const void* src) {
  Vector16 v;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(src)
               : "memory");
  return v;
}

// st.global.v4.b32
FLASH_DEVICE void st_global_16(void* dst, const Vector16& v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
               :
               : "l"(dst), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

// ld.shared.v4.b32 from [address + kOffset]
template <int kOffset>
FLASH_DEVICE Vector16 ld_shared_16(uint32_t address) {
  Vector16 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4 + %5];\n"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(address), "n"(kOffset)
               : "memory");
  return v;
}

// st.shared.v4.b32 to [address + kOffset]
template <int kOffset>
FLASH_DEVICE void st_shared_16(uint32_t address, const Vector16& v) {
  asm volatile("st.shared.v4.b32 [%0 + %5], {%1, %2, %3, %4};\n"
               :
               : "r"(address), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]),
                 "n"(kOffset)
               : "memory");
}

// ld.shared.b32
FLASH_DEVICE uint32_t ld_shared_4(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(word) : "r"(address) : "memory");
  return word;
}

// st.shared.b32 to [address + kOffset]
template <int kOffset>
FLASH_DEVICE void st_shared_4(uint32_t address, uint32_t word) {
  asm volatile("st.shared.b32 [%0 + %2], %1;\n" ::"r"(address), "r"(word), "n"(kOffset) : "memory");
}

}  // namespace flash::ptx
