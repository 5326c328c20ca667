// Hopper's instructions for the tests of the emulator, one function each.
#pragma once

typedef unsigned u32;
typedef unsigned long long u64;

struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

#define HOPPER static __device__ __forceinline__

HOPPER u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

HOPPER bool elect() {
  u32 chosen;
  asm volatile(
      "{ .reg .pred p; .reg .b32 leader;\n elect.sync leader|p, -1;\n selp.u32 %0, 1, 0, p; }"
      : "=r"(chosen));
  return chosen != 0;
}

HOPPER void mbarrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
HOPPER void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
HOPPER void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
HOPPER void mbarrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
HOPPER void mbarrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra WAIT;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
HOPPER void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
HOPPER void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

HOPPER void load_2d(u32 to, const TensorMap* map, u32 barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
HOPPER void store_2d(const TensorMap* map, u32 from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}
HOPPER void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
HOPPER void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

HOPPER void stmatrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
HOPPER u32 pack(float low, float high) {
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

HOPPER void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
HOPPER void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
HOPPER void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Rows of 64 elements, swizzled by 128 bytes, in both operands.
HOPPER u64 descriptor(u32 address) {
  return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (address >> 4 & 0x3FFF);
}
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
// d (64 x 64) += a (64 x 16) b (64 x 16)^T
HOPPER void wgmma_64(float (&d)[32], u64 a, u64 b, int accumulates) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9,"
      " %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27,"
      " %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
      : D4(0), D4(4), D4(8), D4(12), D4(16), D4(20), D4(24), D4(28)
      : "l"(a), "l"(b), "r"(accumulates));
}
