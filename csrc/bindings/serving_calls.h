// Attention of sequences of different lengths and of caches, from its arguments to the launch, for
// calls like one that was remembered.
//
// Sizes change from one step of a generation to the next, so a call is like another one whatever
// they are: the kernel for it and all numbers of its record but a few are those of that call. Where
// the launch depends on sizes (a kernel whose splits are planned by them) they have to be equal.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <cstddef>
#include <unordered_map>

#include "flash/core/serve_args.h"
#include "launch_cache.h"
#include "new_tensors.h"
#include "serving_query.h"
#include "surroundings.h"

namespace flash {

struct ServingWays {
  pybind11::object float32;     // the dtype
  pybind11::object parameter;   // the type of a model's own tensors
  pybind11::object read_sinks;  // (tensor) -> sinks as kernels read them: fp32, contiguous
  TellingSizes telling;
};

class ServingCalls {
 public:
  // o_partial, lse_partial and arrivals, or None.
  using Scratch = std::array<pybind11::object, 3>;

  // The first two as TensorReader's. `around` and `new_tensors` outlive this.
  ServingCalls(pybind11::object tensor_type, pybind11::capsule exchange_api,
               const Surroundings& around, const NewTensors& new_tensors, ServingWays ways);

  // Launches, and returns o, (o, lse) or (o, lse, None); None where nothing was done: no call like
  // it was remembered, or something has to see it.
  pybind11::object attend(const ServingArguments& given);

  // `args`: the record of a checked and launched call with these arguments. A call whose record is
  // not made of the tensors themselves, but of copies (of any but sinks, which are converted for
  // each call), is not remembered. `scratch`: memory that
  // stays (`keeps_scratch`), or what new memory is made like for each call. `by_sizes`: the launch
  // depends on sizes.
  void remember(const ServingArguments& given, std::size_t kernel_id, const ServeArgs& args,
                Scratch scratch, bool keeps_scratch, bool by_sizes);

  std::size_t size() const { return calls_.size(); }

 private:
  struct Call {
    std::size_t kernel_id;
    ServeArgs args;
    Scratch scratch;
    Scratch descriptions;  // what the memory is made by, unless it is kept
    bool keeps_scratch;
    pybind11::object dtype;  // of q
  };
  struct KeyHash {
    std::size_t operator()(const ServingQuery::Key& key) const { return hash_of(key); }
  };

  bool is_seen(const ServingArguments& given) const;
  const Call* find(const ServingQuery& query) const;
  // Of a copy of the call: making tensors lets other threads remember calls, and forget them.
  pybind11::object launch(Call call, const ServingQuery& query,
                          const ServingArguments& given) const;
  Scratch new_scratch(const Call& call, const ServingQuery& query) const;
  pybind11::object new_output(const Call& call, const ServingQuery& query,
                              const ServingArguments& given) const;
  pybind11::object new_lse(const ServingQuery& query, const ServingArguments& given) const;
  template <typename T>
  void put_address(pybind11::handle tensor, T*& pointer) const;

  static constexpr std::size_t kMaxCalls = 4096;  // as LaunchCache

  TensorReader reader_;
  const Surroundings& around_;
  const NewTensors& new_tensors_;
  ServingWays ways_;
  std::unordered_map<ServingQuery::Key, Call, KeyHash> calls_;
};

}  // namespace flash
