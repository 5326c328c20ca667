// Switching between fibers on one OS thread.
//
// The x86-64 version leaves by `jmp` instead of `ret` (2 ns instead of 10 ns: `ret` to another
// stack always misses the return predictor) and names every register as clobbered, so that the
// compiler saves exactly what is live. Other machines use ucontext, which costs 190 ns a switch.
// Code that includes this header must be compiled with -mno-red-zone on x86-64.
#pragma once

#include "types.h"

#if !defined(__x86_64__) || defined(EMULATOR_PORTABLE_CONTEXT)
#include <ucontext.h>
#endif

namespace emulator {

// What a fiber runs; it never returns.
using FiberMain = void (*)(void* const* frame);  // frame[1] is the argument

#if defined(__x86_64__) && !defined(EMULATOR_PORTABLE_CONTEXT)

struct Context {
  void* stack_pointer = nullptr;
};

// The first switch jumps to `main` as a call would: frame[1] lies where the return address does.
inline void prepare_context(Context& context, u8* stack, u64 bytes, FiberMain main,
                            void* argument) {
  auto** frame = reinterpret_cast<void**>((reinterpret_cast<u64>(stack) + bytes) & ~u64{15}) - 2;
  frame[0] = reinterpret_cast<void*>(main);
  frame[1] = argument;
  context.stack_pointer = frame;
}

// All masks: tuned for some processors, gcc keeps integers in them, in k0 too.
#if defined(__AVX512F__)
#define EMULATOR_MORE_VECTORS                                                                   \
  , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",   \
      "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", \
      "k6", "k7"
#else
#define EMULATOR_MORE_VECTORS
#endif

inline void switch_context(Context& from, const Context& to) {
  void** save = &from.stack_pointer;
  void* target = to.stack_pointer;  // in %rdi, where `main` finds it
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
      : "+a"(save), "+D"(target)
      :
      : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory",
        "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15" EMULATOR_MORE_VECTORS);
}

#else

struct Context {
  ucontext_t state;
  void* frame[2];
};

// makecontext passes ints only: a pointer travels as two halves.
inline void enter_fiber(u32 high, u32 low) {
  auto* frame = reinterpret_cast<void**>(u64{high} << 32 | low);
  reinterpret_cast<FiberMain>(frame[0])(frame);
}

inline void prepare_context(Context& context, u8* stack, u64 bytes, FiberMain main,
                            void* argument) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = bytes;
  context.frame[0] = reinterpret_cast<void*>(main);
  context.frame[1] = argument;
  auto bits = reinterpret_cast<u64>(context.frame);
  auto* enter = reinterpret_cast<void (*)()>(&enter_fiber);
  makecontext(&context.state, enter, 2, u32(bits >> 32), u32(bits));
}

inline void switch_context(Context& from, const Context& to) {
  swapcontext(&from.state, &to.state);
}

#endif

}  // namespace emulator
