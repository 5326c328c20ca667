// Warpgroup-wide asynchronous matrix multiply-accumulate on 16-bit operands (PTX ISA 9.7.15,
// sm_90a).
//
// d (64 x N, fp32, in registers) = a (64 x 16) * b (16 x N) + d, by the four warps of a warpgroup.
// Warp w holds rows 16 w .. 16 w + 15. With g = lane / 4, t = lane % 4:
//   d[4 j + 0..1] = (row g, columns 8 j + 2 t, + 1)   d[4 j + 2..3] = (row g + 8, same columns)
//   a[0] = (row g, k 2t..2t+1)   a[1] = (row g + 8, same k)   a[2], a[3] = the same rows, k + 8
// b, and a where it comes from shared memory, are named by descriptors (tile/matrix_descriptor.h).
//
// Between the first wgmma of a group and the wait for it, nothing may touch its registers.
#pragma once

#include "flash/core/dtype.h"
#include "flash/ptx/device.cuh"

namespace flash::ptx {

// wgmma.fence: orders this warp's register and shared-memory accesses before the wgmmas that
// follow.
FLASH_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

// wgmma.commit_group: closes the group of the wgmmas since the last commit.
FLASH_DEVICE void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// wgmma.wait_group kPending: until at most kPending groups are in flight.
template <int kPending>
FLASH_DEVICE void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// Tells the compiler that the asynchronous instructions read or write these registers here.
template <int kCount>
FLASH_DEVICE void wgmma_touch(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T, one specialization for each N that kernels use.
//   ss: a and b from shared memory, both K-major.
//   ss_a_mn: the same with a MN-major ("transposed"): rows of a are columns of memory.
//   ss_mn: with both MN-major: rows of b are rows of memory, too.
//   rs: a from registers, b MN-major ("transposed"): rows of b are rows of memory.
//   rs_k: the same with b K-major.
// `accumulate` 0: d is overwritten instead of added to.
template <int kN>
struct Wgmma;

// clang-format off

#define FLASH_NUMBERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FLASH_NUMBERS_16 FLASH_NUMBERS_8 ", " "%8, %9, %10, %11, %12, %13, %14, %15"
#define FLASH_NUMBERS_24 FLASH_NUMBERS_16 ", " "%16, %17, %18, %19, %20, %21, %22, %23"
#define FLASH_NUMBERS_32 FLASH_NUMBERS_24 ", " "%24, %25, %26, %27, %28, %29, %30, %31"
#define FLASH_NUMBERS_40 FLASH_NUMBERS_32 ", " "%32, %33, %34, %35, %36, %37, %38, %39"
#define FLASH_NUMBERS_48 FLASH_NUMBERS_40 ", " "%40, %41, %42, %43, %44, %45, %46, %47"
#define FLASH_NUMBERS_56 FLASH_NUMBERS_48 ", " "%48, %49, %50, %51, %52, %53, %54, %55"
#define FLASH_NUMBERS_64 FLASH_NUMBERS_56 ", " "%56, %57, %58, %59, %60, %61, %62, %63"
#define FLASH_NUMBERS_72 FLASH_NUMBERS_64 ", " "%64, %65, %66, %67, %68, %69, %70, %71"
#define FLASH_NUMBERS_80 FLASH_NUMBERS_72 ", " "%72, %73, %74, %75, %76, %77, %78, %79"
#define FLASH_NUMBERS_88 FLASH_NUMBERS_80 ", " "%80, %81, %82, %83, %84, %85, %86, %87"
#define FLASH_NUMBERS_96 FLASH_NUMBERS_88 ", " "%88, %89, %90, %91, %92, %93, %94, %95"
#define FLASH_NUMBERS_104 FLASH_NUMBERS_96 ", " "%96, %97, %98, %99, %100, %101, %102, %103"
#define FLASH_NUMBERS_112 FLASH_NUMBERS_104 ", " "%104, %105, %106, %107, %108, %109, %110, %111"
#define FLASH_NUMBERS_120 FLASH_NUMBERS_112 ", " "%112, %113, %114, %115, %116, %117, %118, %119"
#define FLASH_NUMBERS_128 FLASH_NUMBERS_120 ", " "%120, %121, %122, %123, %124, %125, %126, %127"
#define FLASH_REGISTERS_8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLASH_REGISTERS_16(d, i) FLASH_REGISTERS_8(d, i), FLASH_REGISTERS_8(d, i + 8)
#define FLASH_REGISTERS_24(d, i) FLASH_REGISTERS_16(d, i), FLASH_REGISTERS_8(d, i + 16)
#define FLASH_REGISTERS_32(d, i) FLASH_REGISTERS_24(d, i), FLASH_REGISTERS_8(d, i + 24)
#define FLASH_REGISTERS_40(d, i) FLASH_REGISTERS_32(d, i), FLASH_REGISTERS_8(d, i + 32)
#define FLASH_REGISTERS_48(d, i) FLASH_REGISTERS_40(d, i), FLASH_REGISTERS_8(d, i + 40)
#define FLASH_REGISTERS_56(d, i) FLASH_REGISTERS_48(d, i), FLASH_REGISTERS_8(d, i + 48)
#define FLASH_REGISTERS_64(d, i) FLASH_REGISTERS_56(d, i), FLASH_REGISTERS_8(d, i + 56)
#define FLASH_REGISTERS_72(d, i) FLASH_REGISTERS_64(d, i), FLASH_REGISTERS_8(d, i + 64)
#define FLASH_REGISTERS_80(d, i) FLASH_REGISTERS_72(d, i), FLASH_REGISTERS_8(d, i + 72)
#define FLASH_REGISTERS_88(d, i) FLASH_REGISTERS_80(d, i), FLASH_REGISTERS_8(d, i + 80)
#define FLASH_REGISTERS_96(d, i) FLASH_REGISTERS_88(d, i), FLASH_REGISTERS_8(d, i + 88)
#define FLASH_REGISTERS_104(d, i) FLASH_REGISTERS_96(d, i), FLASH_REGISTERS_8(d, i + 96)
#define FLASH_REGISTERS_112(d, i) FLASH_REGISTERS_104(d, i), FLASH_REGISTERS_8(d, i + 104)
#define FLASH_REGISTERS_120(d, i) FLASH_REGISTERS_112(d, i), FLASH_REGISTERS_8(d, i + 112)
#define FLASH_REGISTERS_128(d, i) FLASH_REGISTERS_120(d, i), FLASH_REGISTERS_8(d, i + 120)
// clang-format on

#define FLASH_WGMMA_SS(TYPE, N, COUNT, A, B, ACCUMULATE, A_MN, B_MN)                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE                                  \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                 \
               " {" FLASH_NUMBERS_##COUNT "}, " A ", " B ", p, 1, 1, " A_MN ", " B_MN ";\n}\n" \
               : FLASH_REGISTERS_##COUNT(d, 0)                                                 \
               : "l"(a), "l"(b), "r"(accumulate))

#define FLASH_WGMMA_RS(TYPE, N, COUNT, A0, A1, A2, A3, B, ACCUMULATE, B_MN)         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE                       \
               ", 0;\n"                                                             \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE      \
               " {" FLASH_NUMBERS_##COUNT "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B \
                                          ", p, 1, 1, " B_MN ";\n}\n"               \
               : FLASH_REGISTERS_##COUNT(d, 0)                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

// I0 .. I5: the numbers of the operands behind the COUNT accumulators.
#define FLASH_WGMMA(N, COUNT, I0, I1, I2, I3, I4, I5)                                             \
  template <>                                                                                     \
  struct Wgmma<N> {                                                                               \
    template <DType kDType>                                                                       \
    FLASH_DEVICE static void ss(float (&d)[COUNT], uint64_t a, uint64_t b, int accumulate) {      \
      if constexpr (kDType == DType::kFP16) {                                                     \
        FLASH_WGMMA_SS("f16", N, COUNT, I0, I1, I2, "0", "0");                                    \
      } else {                                                                                    \
        FLASH_WGMMA_SS("bf16", N, COUNT, I0, I1, I2, "0", "0");                                   \
      }                                                                                           \
    }                                                                                             \
    template <DType kDType>                                                                       \
    FLASH_DEVICE static void ss_a_mn(float (&d)[COUNT], uint64_t a, uint64_t b, int accumulate) { \
      if constexpr (kDType == DType::kFP16) {                                                     \
        FLASH_WGMMA_SS("f16", N, COUNT, I0, I1, I2, "1", "0");                                    \
      } else {                                                                                    \
        FLASH_WGMMA_SS("bf16", N, COUNT, I0, I1, I2, "1", "0");                                   \
      }                                                                                           \
    }                                                                                             \
    template <DType kDType>                                                                       \
    FLASH_DEVICE static void ss_mn(float (&d)[COUNT], uint64_t a, uint64_t b, int accumulate) {   \
      if constexpr (kDType == DType::kFP16) {                                                     \
        FLASH_WGMMA_SS("f16", N, COUNT, I0, I1, I2, "1", "1");                                    \
      } else {                                                                                    \
        FLASH_WGMMA_SS("bf16", N, COUNT, I0, I1, I2, "1", "1");                                   \
      }                                                                                           \
    }                                                                                             \
    template <DType kDType>                                                                       \
    FLASH_DEVICE static void rs(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b,            \
                                int accumulate) {                                                 \
      if constexpr (kDType == DType::kFP16) {                                                     \
        FLASH_WGMMA_RS("f16", N, COUNT, I0, I1, I2, I3, I4, I5, "1");                             \
      } else {                                                                                    \
        FLASH_WGMMA_RS("bf16", N, COUNT, I0, I1, I2, I3, I4, I5, "1");                            \
      }                                                                                           \
    }                                                                                             \
    template <DType kDType>                                                                       \
    FLASH_DEVICE static void rs_k(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b,          \
                                  int accumulate) {                                               \
      if constexpr (kDType == DType::kFP16) {                                                     \
        FLASH_WGMMA_RS("f16", N, COUNT, I0, I1, I2, I3, I4, I5, "0");                             \
      } else {                                                                                    \
        FLASH_WGMMA_RS("bf16", N, COUNT, I0, I1, I2, I3, I4, I5, "0");                            \
      }                                                                                           \
    }                                                                                             \
  }

FLASH_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20", "%21");
FLASH_WGMMA(48, 24, "%24", "%25", "%26", "%27", "%28", "%29");
FLASH_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37");
FLASH_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45");
FLASH_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53");
FLASH_WGMMA(112, 56, "%56", "%57", "%58", "%59", "%60", "%61");
FLASH_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69");
FLASH_WGMMA(144, 72, "%72", "%73", "%74", "%75", "%76", "%77");
FLASH_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84", "%85");
FLASH_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92", "%93");
FLASH_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101");
FLASH_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133");

#undef FLASH_WGMMA
#undef FLASH_WGMMA_RS
#undef FLASH_WGMMA_SS

}  // namespace flash::ptx
