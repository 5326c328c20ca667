// Switching between fibers on one OS thread.
//
// The x86-64 version leaves by `jmp` instead of `ret` (2 ns instead of 10 ns: `ret` to another
// stack always misses the return predictor) and names every register as clobbered, so that the
// compiler saves exactly what is live. Other machines use ucontext, which costs 190 ns a switch.
// Code that includes this header must be compiled with -mno-red-zone on x86-64.
#pragma once

#include "types.h"

#if defined(__x86_64__) && !defined(EMULATOR_PORTABLE_CONTEXT)
#define EMULATOR_ASM_CONTEXT 1
#else
#define EMULATOR_ASM_CONTEXT 0
#include <ucontext.h>
#endif

namespace emulator {

using FiberMain = void (*)(void* argument);

#if EMULATOR_ASM_CONTEXT

struct Context {
  void* stack_pointer = nullptr;
};

extern "C" void emulator_fiber_trampoline();  // context_switch.cpp

inline void prepare_context(Context& context, u8* stack, u64 stack_bytes, FiberMain main,
                            void* argument) {
  u64 top = (reinterpret_cast<u64>(stack) + stack_bytes) & ~u64{15};
  auto* frame = reinterpret_cast<void**>(top) - 4;  // trampoline pops three: 16-byte aligned call
  frame[0] = reinterpret_cast<void*>(&emulator_fiber_trampoline);
  frame[1] = argument;
  frame[2] = reinterpret_cast<void*>(main);
  frame[3] = nullptr;
  context.stack_pointer = frame;
}

#if defined(__AVX512F__)
#define EMULATOR_VECTOR_CLOBBERS                                                                \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",      \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", \
      "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", \
      "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define EMULATOR_VECTOR_CLOBBERS                                                           \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#endif

inline void switch_context(Context& from, const Context& to) {
  void** save = &from.stack_pointer;
  void* target = to.stack_pointer;
  asm volatile(
      "pushq %%rbp\n\t"
      "pushq %%rbx\n\t"
      "leaq 1f(%%rip), %%rcx\n\t"
      "pushq %%rcx\n\t"
      "movq %%rsp, (%0)\n\t"
      "movq %1, %%rsp\n\t"
      "popq %%rcx\n\t"
      "jmpq *%%rcx\n"
      "1:\n\t"
      "popq %%rbx\n\t"
      "popq %%rbp\n\t"
      : "+a"(save), "+d"(target)
      :
      : "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory",
        EMULATOR_VECTOR_CLOBBERS);
}

#else

struct Context {
  ucontext_t state;
};

void prepare_context(Context& context, u8* stack, u64 stack_bytes, FiberMain main, void* argument);

inline void switch_context(Context& from, const Context& to) {
  swapcontext(&from.state, &to.state);
}

#endif

}  // namespace emulator
