// atom and red: one read-modify-write loop on the host's own atomics, so that blocks on different
// OS threads stay correct.
#pragma once

#include "types.h"

namespace emulator {

// Replaces the value at `pointer` by update(old) and returns old. Bits is the unsigned type of
// the same size as T.
template <typename T, typename Bits, typename Update>
inline T atomic_update(u8* pointer, Update update) {
  auto* target = reinterpret_cast<Bits*>(pointer);
  Bits old = __atomic_load_n(target, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(target, &old, as<Bits>(T(update(as<T>(old)))), false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return as<T>(old);
}

template <typename T>
inline T atomic_inc(T old, T limit) {
  return old >= limit ? T(0) : T(old + 1);
}
template <typename T>
inline T atomic_dec(T old, T limit) {
  return old == 0 || old > limit ? limit : T(old - 1);
}

}  // namespace emulator
