"""The counters of tiles without a GPU: the runtime's code, linked with a stand-in for CUDA."""

from __future__ import annotations

from tests.cpp_programs import lines_of, runtime_flags, runtime_sources

PROGRAM = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "sm90/tile_counters.h"

static int allocations = 0;

static cudaStream_t stream(std::uintptr_t id) { return reinterpret_cast<cudaStream_t>(id); }

extern "C" {
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  ++allocations;
  *memory = std::malloc(bytes);
  std::memset(*memory, 0x55, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *made = stream(0xabc);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t where) {
  if (where != stream(0xabc)) return cudaErrorStreamCaptureImplicit;
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
// Handles ending in 1 are captured, those ending in 2 beside a capture; two handles have one id.
cudaError_t cudaStreamIsCapturing(cudaStream_t where, cudaStreamCaptureStatus* status) {
  const auto handle = reinterpret_cast<std::uintptr_t>(where);
  if (handle % 16 == 2) return cudaErrorStreamCaptureImplicit;
  *status = handle % 16 == 1 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t where, unsigned long long* id) {
  *id = reinterpret_cast<std::uintptr_t>(where) / 2 * 2 / 4;
  return cudaSuccess;
}
}

static int failures = 0;
static void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("%s\n", what);
}

int main() {
  using flash::sm90::tile_counter;
  expect(tile_counter(0, stream(16)) == nullptr, "without preparation there is none");
  flash::sm90::prepare_tile_counters(0);
  flash::sm90::prepare_tile_counters(0);
  expect(allocations == 1, "one allocation for a device");
  flash::sm90::prepare_tile_counters(1);
  expect(allocations == 2, "one allocation for each device");

  std::int32_t* const first = tile_counter(0, stream(16));
  expect(first != nullptr && *first == 0, "a counter starts at zero");
  expect(tile_counter(0, stream(16)) == first, "a stream keeps its counter");
  expect(tile_counter(0, stream(32)) != first, "streams share no counter");
  expect(tile_counter(1, stream(16)) != first, "devices share no counter");
  expect(tile_counter(0, stream(17)) == nullptr, "a captured stream has none");
  expect(tile_counter(0, stream(18)) == nullptr, "the default stream beside a capture has none");

  std::vector<std::thread> threads;
  std::vector<std::vector<std::int32_t*>> found(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&found, t] {
      for (std::uintptr_t i = 1; i <= 2000; ++i) {
        found[t].push_back(tile_counter(0, stream(16 * i)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<std::int32_t*> different;
  int none = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    std::int32_t* const counter = tile_counter(0, stream(16 * (i + 1)));
    for (const auto& mine : found) {
      expect(mine[i] == counter || counter == nullptr || mine[i] == nullptr, "threads agree");
    }
    if (counter == nullptr) ++none;
    else expect(different.insert(counter).second && *counter == 0, "a counter of its own, zero");
  }
  expect(none == 2000 - flash::sm90::kStreamsWithCounters, "streams in excess have none");
  std::printf("%d failures\n", failures);
}
"""


def test_counters() -> None:
    sources = runtime_sources("sm90/tile_counters", "error")
    others = [flag for flag in runtime_flags() if not flag.startswith("-fsanitize")]
    flags = [*others, "-O1", "-fsanitize=thread", "-pthread"]
    assert lines_of(PROGRAM, sources=sources, flags=flags) == ["0 failures"]
