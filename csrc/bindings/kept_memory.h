// Memory that is kept for each stream, on which launches follow each other: what launches find
// zero, and leave zero, and what they use among themselves.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>
#include <optional>

namespace flash {

// cuStreamGetId and cuStreamIsCapturing, of the driver's ABI: (stream, answer) -> CUresult.
using StreamId = int (*)(void*, unsigned long long*);
using StreamIsCapturing = int (*)(void*, int*);

struct StreamQuestions {
  StreamId id;  // never used again, unlike the handle
  StreamIsCapturing is_capturing;
};

struct KeptBytes {
  std::uint64_t zeros;
  std::uint64_t scratch;  // may be 0
};

struct KeptAddresses {
  std::uint64_t zeros;
  std::uint64_t scratch;
};

// For the next launches on a stream of `device`; `make_zeros`: (bytes) -> a tensor on the current
// stream, which is this one. Nothing while the stream is captured, because a graph may run beside
// later launches on it, and where the driver gives no answer. Python's lock is held.
std::optional<KeptAddresses> kept_memory(const StreamQuestions& ask, std::int64_t device,
                                         void* stream, const KeptBytes& n_bytes,
                                         pybind11::handle make_zeros);

}  // namespace flash
