// What a serving call is: its tensors and numbers, in words that calls are told apart by.
#pragma once

#include <cuda_runtime_api.h>
#include <pybind11/pytypes.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "flash/core/serve_args.h"
#include "latent_parts.h"
#include "tensor_reader.h"

namespace flash {

// The arguments of a call as its user gave them, in this order; None: it has no such.
enum class Given {
  kQ,
  kK,
  kV,
  kOut,
  kCuSeqlensQ,
  kCuSeqlensK,
  kSequsedQ,
  kSequsedK,  // for caches: or an int, for all sequences
  kLeftpad,
  kSlots,
  kBlockTable,
  kPageTable,  // another name of the table
  kSAux,
  kLearnableSink,  // another name of it
  kSinks,          // and another
  kQv,             // or an int: so many elements of q and k come first, are qv and v, and v is None
  kScale,
  kCausal,
  kWindow,
  kSoftcap,
  kNumSplits,
  kForCaches,  // whether the function is the one for caches, and not the one for packed sequences
  kResults,    // how many of o, lse and None are returned
  kRefused,    // a tuple of arguments of which only None, False and 0 are taken
  kCount,
};

class ServingArguments {
 public:
  static constexpr std::size_t kCount = static_cast<std::size_t>(Given::kCount);
  explicit ServingArguments(const std::array<pybind11::handle, kCount>& given) : given_(given) {}
  pybind11::handle operator[](Given name) const { return given_[static_cast<std::size_t>(name)]; }

 private:
  std::array<pybind11::handle, kCount> given_;
};

// What of a call's sizes says which kernel serves it (serve_config.py).
struct TellingSizes {
  std::int64_t most_rows;   // of the average sequence; more say nothing more
  std::int64_t many_heads;  // KV heads of all sequences: as many or not
  std::int64_t pair_heads;  // the same: as many as these, which are more
  std::int64_t few_heads;   // the same, and as few: how many
  std::int64_t cut_heads;   // the same, and no more: whether a sequence has
  std::int64_t few_keys;    // no more keys than these
  std::int64_t most_units;  // that a call has which goes the short way
};

class ServingQuery {
 public:
  // The first pointers of the argument record, in its order, and one behind its strides. kLse is
  // never given.
  enum Tensor {
    kQ,
    kK,
    kV,
    kO,
    kLse,
    kCuSeqlensQ,
    kCuSeqlensK,
    kSequsedQ,
    kSequsedK,
    kLeftpad,
    kSlots,
    kTable,
    kSinks,
    kQv,
    kTensors,
  };
  static_assert(offsetof(ServeArgs, sinks) == kSinks * sizeof(void*));

  // More than any call has: 15 of numbers, sizes, stream and which tensors there are, 3 of
  // key_of_sizes, and of tensors 9 for each with rows (k and v: 10), 3 for each other.
  static constexpr std::size_t kWords = 92;
  static_assert(kWords >= 15 + 3 + 5 * 9 + 2 + 8 * 3);
  using Key = std::array<std::int64_t, kWords>;

  // False for what no call that is remembered can have. What `telling` says stands in the key.
  bool read(const TensorReader& reader, const ServingArguments& given, const TellingSizes& telling);

  // Calls with one key differ in addresses, and in how many sequences, queries, keys and pages
  // there are.
  const Key& key() const { return key_; }
  // For a call whose launch depends on those numbers: calls with one key differ in addresses alone.
  Key key_of_sizes() const;

  // Whether kernels can have the tensors where they lie, and `out` lies apart from all others.
  bool lies_well() const;
  // Whether kernels cannot have the sinks as they are: they read fp32, one behind the other.
  bool converts_sinks() const;
  // Writes into the record of a call with this key what differs in this one; the addresses of
  // outputs that are not given, and of sinks that are converted, stay as they are.
  void put_into(ServeArgs& args) const;

  pybind11::handle sinks() const { return sinks_; }
  bool has(Tensor which) const { return present_[which]; }
  const dlpack::Tensor& operator[](Tensor which) const { return tensors_[which]; }
  const dlpack::Device& device() const { return tensors_[kQ].device; }
  cudaStream_t stream() const { return stream_; }
  bool is_packed() const { return has(kCuSeqlensQ); }
  int n_results() const { return n_results_; }

 private:
  bool read_tensors(const TensorReader& reader, const ServingArguments& given);
  bool part_latents(std::int64_t d_v);
  bool read_numbers(const ServingArguments& given);
  bool read_sizes(const TellingSizes& telling);
  bool is_shaped_like_result() const;
  bool is_shaped_like_latents() const;

  void add(std::int64_t word) { key_[n_words_++] = word; }
  void add_rows(Tensor which, bool any_size);
  void add_indices(Tensor which);

  static constexpr int kPointers = kSinks + 1;  // that the record begins with

  std::array<dlpack::Tensor, kTensors> tensors_{};
  LatentParts parts_of_q_, parts_of_k_;  // that tensors_ point into
  pybind11::handle sinks_;
  std::array<bool, kTensors> present_{};
  Key key_{};
  std::size_t n_words_ = 0;
  cudaStream_t stream_ = nullptr;
  std::int64_t keys_of_all_ = -1;  // -1: tensors say it
  std::int64_t batch_ = 0;
  std::int64_t n_rows_ = 0;
  std::int64_t most_keys_ = 0;
  int n_results_ = 1;
};

}  // namespace flash
