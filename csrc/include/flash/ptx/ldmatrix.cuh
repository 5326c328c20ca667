// Warp-wide loads of 8x8 matrices of 16-bit elements (PTX ISA 9.7.14.5.15, sm_75 and later).
//
// Lane l passes the address of one 16-byte row: of matrix l / 8, row l % 8. It receives from matrix
// i, in r[i], the elements (row l / 4, columns 2 * (l % 4) and the next); transposed: columns and
// rows exchanged. Called by all 32 lanes.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r0, r1, r2, r3}, [address + kOffset]
template <int kOffset>
FLASH_DEVICE void ldmatrix_x4(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address), "n"(kOffset)
               : "memory");
}

// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {r0, r1, r2, r3}, [address + kOffset]
template <int kOffset>
FLASH_DEVICE void ldmatrix_x4_trans(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address), "n"(kOffset)
               : "memory");
}

}  // namespace flash::ptx
