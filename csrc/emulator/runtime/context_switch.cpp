#include "context_switch.h"

#if EMULATOR_ASM_CONTEXT

// First entry of a fiber: the frame that prepare_context() laid out holds argument and function.
asm(R"(
.text
.globl emulator_fiber_trampoline
.hidden emulator_fiber_trampoline
.type emulator_fiber_trampoline, @function
emulator_fiber_trampoline:
  popq %rdi
  popq %rax
  popq %rbp
  call *%rax
  ud2
.size emulator_fiber_trampoline, . - emulator_fiber_trampoline
)");

#else

namespace emulator {

namespace {

// makecontext passes ints only: a pointer travels as two halves.
void enter(u32 main_high, u32 main_low, u32 argument_high, u32 argument_low) {
  auto join = [](u32 high, u32 low) { return u64{high} << 32 | low; };
  auto main = reinterpret_cast<FiberMain>(join(main_high, main_low));
  main(reinterpret_cast<void*>(join(argument_high, argument_low)));
}

}  // namespace

void prepare_context(Context& context, u8* stack, u64 stack_bytes, FiberMain main, void* argument) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = stack_bytes;
  context.state.uc_link = nullptr;
  auto main_bits = reinterpret_cast<u64>(main);
  auto argument_bits = reinterpret_cast<u64>(argument);
  makecontext(&context.state, reinterpret_cast<void (*)()>(&enter), 4, u32(main_bits >> 32),
              u32(main_bits), u32(argument_bits >> 32), u32(argument_bits));
}

}  // namespace emulator

#endif
