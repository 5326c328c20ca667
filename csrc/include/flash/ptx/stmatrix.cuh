// Warp-wide stores of 8x8 matrices of 16-bit elements (PTX ISA 9.7.14.5.16, sm_90 and later).
//
// The inverse of ldmatrix: lane l passes the address of one 16-byte row, of matrix l / 8, row
// l % 8; r[i] holds the elements (row l / 4, columns 2 * (l % 4) and the next) of matrix i. Called
// by all 32 lanes.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// stmatrix.sync.aligned.m8n8.x4.shared.b16 [address], {r0, r1, r2, r3}
FLASH_DEVICE void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2,
                              uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [address + kOffset], {r0, r1, r2, r3}: every
// matrix with columns and rows exchanged, so that r[i] holds (column l / 4, rows 2 * (l % 4) and
// the next).
template <int kOffset>
FLASH_DEVICE void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0 + %5], {%1, %2, %3, %4};\n" ::"r"(
          address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "n"(kOffset)
      : "memory");
}

}  // namespace flash::ptx
