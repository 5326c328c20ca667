// Launches a call like one that Python has checked before, without checking it again.
//
// Python validates the first call with some combination of configuration, shapes, strides, dtypes
// and devices, launches it and lets the cache remember() it. A later call that differs only in
// addresses takes again(): alignment and overlap are checked, everything else is known. Whatever is
// unusual makes again() return false, and Python's checks find the words for it.
#pragma once

// Not all of pybind11, which takes five seconds to compile: handles and objects, no exceptions.
#include <pybind11/pytypes.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "backward_launcher.h"
#include "flash/core/args.h"
#include "flash/core/backward_args.h"
#include "launcher.h"
#include "python_calls.h"
#include "tensor_reader.h"

namespace flash {

// Of an object; None does not.
bool requires_grad(pybind11::handle tensor);

// None, or positive: of negative and zero scales the queries, or the scale, are changed first.
bool is_usual_scale(pybind11::handle scale);

// Kinds of calls. The argument record begins with the addresses of the tensors, in this order:
// those that are read, then those that are written.
struct ForwardCalls {
  using Args = ForwardArgs;
  static constexpr int kInputs = 3;   // q, k, v
  static constexpr int kTensors = 5;  // and o, lse
  static constexpr auto kLaunch = &launch;
  static_assert(offsetof(Args, lse) == (kTensors - 1) * sizeof(void*));
};

struct BackwardCalls {
  using Args = BackwardArgs;
  static constexpr int kInputs = 7;    // q, k, v, o, d_o, lse, d_lse
  static constexpr int kTensors = 12;  // and d_q, d_k, d_v, row_stats, d_q_sums
  static constexpr auto kLaunch = &launch_backward;
  static_assert(offsetof(Args, d_q_sums) == (kTensors - 1) * sizeof(void*));
};

// What a call knows of a tensor: type and device, 4 sizes, 4 strides.
constexpr int kWordsPerTensor = 9;
using TensorWords = std::span<const std::int64_t, kWordsPerTensor>;

// The number of the device.
int device_of(TensorWords words);

// Of a key of any length.
std::size_t hash_of(std::span<const std::int64_t> words);

template <typename Calls>
class LaunchCache {
 public:
  using Args = typename Calls::Args;
  using Objects = std::array<pybind11::handle, Calls::kTensors>;  // None: the call has no such

  // As TensorReader's.
  LaunchCache(pybind11::object tensor_type, pybind11::capsule exchange_api);

  // Launches on the tensors' device and its current stream if this kind of call was remembered.
  // Raises CudaError as launch() does.
  bool again(pybind11::handle config, const Objects& objects, pybind11::handle softmax_scale,
             pybind11::handle causal, bool grad_enabled);

  // `args`: the argument record of a checked and launched call with these objects.
  void remember(pybind11::object config, const Objects& objects, pybind11::handle softmax_scale,
                pybind11::handle causal, std::size_t kernel_id, const pybind11::bytes& args);

  // The same in steps, for those that make outputs in between. Each says false for what no call
  // that is remembered can have.
  class Query;
  static bool begin(Query& query, pybind11::handle config, pybind11::handle softmax_scale,
                    pybind11::handle causal);
  // The tensor with this index, or None. `heads_first`: (batch, heads, seq, d) stands for the
  // tensor (batch, seq, heads, d) of the same memory.
  bool add(Query& query, int index, pybind11::handle object, bool heads_first = false) const;
  bool launch(const Query& query);

  std::size_t size() const { return calls_.size(); }
  void clear() { calls_.clear(); }

 private:
  static constexpr int kTensors = Calls::kTensors;
  static constexpr int kCallWords = 4;  // configuration, whether a scale, scale, causal
  using Key = std::array<std::int64_t, kCallWords + kTensors * kWordsPerTensor>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return hash_of(key); }
  };
  using Tensors = std::array<dlpack::Tensor, kTensors>;
  using Addresses = std::array<std::uintptr_t, kTensors>;
  static_assert(sizeof(Addresses) == kTensors * sizeof(void*));

  struct Call {
    pybind11::object config;  // kept alive: its address stands in the key
    std::size_t kernel_id;
    Args args;
    std::array<std::int64_t, kTensors> extent_bytes;  // from first to last element; of none 0
  };

  // Reads the objects into tensors and key; false if one of them is not what again() can take.
  bool describe(pybind11::handle config, const Objects& objects, pybind11::handle softmax_scale,
                pybind11::handle causal, Query& query) const;
  // Of a call whose tensors are described alike.
  static bool can_lie_at(const Addresses& at, const Tensors& tensors, const Call& call);

  // A program that makes up new shapes for ever must not grow without bound.
  static constexpr std::size_t kMaxCalls = 4096;

  TensorReader reader_;
  std::unordered_map<Key, Call, KeyHash> calls_;
};

template <typename Calls>
class LaunchCache<Calls>::Query {
 public:
  TensorWords words(int index) const {
    return TensorWords(key_.data() + kCallWords + index * kWordsPerTensor, kWordsPerTensor);
  }

 private:
  friend class LaunchCache;
  Tensors tensors_{};
  Key key_{};
};

}  // namespace flash
