// A call of an operator in Triton like one that went before, from the given tensors to the
// launches.
//
// All but addresses and the stream is known. Triton's launcher would read every argument again, and
// Python's way from one to the next takes as long as a launch.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "kept_memory.h"
#include "tensor_addresses.h"
#include "tensor_maps.h"

namespace flash {

// cuLaunchKernel, of the driver's ABI: (function, grid, block, shared bytes, stream, parameters,
// nothing) -> CUresult.
using LaunchKernel = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, void*, void**, void**);
// cuLaunchCooperativeKernel, the same but for the last.
using LaunchCooperative = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, void*, void**);

// cuLaunchKernelEx: (how, function, parameters, nothing) -> CUresult. The records are the driver's
// CUlaunchAttribute, of 72 bytes, and CUlaunchConfig.
struct alignas(8) LaunchAttribute {
  int kind;
  int padding;
  std::array<unsigned, 16> value;
};
struct LaunchConfig {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned n_attributes;
};
using LaunchExtended = int (*)(const LaunchConfig*, void*, void**, void**);

struct RepeatedStep {
  void* function;
  std::array<unsigned, 3> grid;
  unsigned threads;
  unsigned shared_bytes;
  bool cooperative;                       // its blocks wait for each other
  unsigned cluster;                       // blocks of one, along the grid's first dimension
  std::vector<std::uint64_t> parameters;  // each begins with its first byte
  // (parameter, tensor): whose address it is.
  std::vector<std::pair<std::size_t, std::size_t>> addresses;
  std::vector<KeptMap> maps;  // in place of parameters
};

struct RepeatedMemory {
  // Of each given tensor: the bytes it has from its first element on, and those of an element.
  std::vector<std::pair<std::int64_t, std::int64_t>> needed;
  std::vector<std::pair<std::size_t, std::size_t>> apart;  // given tensors that must not overlap
  using Kind = std::tuple<pybind11::object, pybind11::object, pybind11::object>;
  std::vector<Kind> made;  // size, stride and type of tensors that are made
  // Where tensors begin that nobody sees: in the last of those that are made, or in memory that is
  // kept, with what stays zero. It comes behind them. With zeros of 0 bytes nothing is kept.
  std::vector<std::uint64_t> scratch;
  KeptBytes kept;
};

struct RepeatedWays {
  // Those behind the first may be null: where no step is cooperative, where none has clusters,
  // where none has maps, and where nothing stays zero.
  LaunchKernel launch;
  LaunchCooperative launch_cooperative;
  LaunchExtended launch_extended;
  ReplaceAddress replace_address;
  StreamQuestions of_stream;
  // (object, name of an attribute): functions that want to see launches, in a list `calls` of it or
  // instead of one.
  std::vector<std::pair<pybind11::object, pybind11::object>> hooks;
  pybind11::object current_device;  // () -> its number
  pybind11::object stream_of;       // (device) -> the current one
  pybind11::object empty;           // (size, stride, type) -> a tensor
  pybind11::object zeros;           // (bytes) -> a tensor
  pybind11::object device;
  TensorAddresses addresses;
};

class RepeatedLaunches {
 public:
  static constexpr std::size_t kMostTensors = 32;
  using Addresses = std::array<std::uint64_t, kMostTensors>;

  // `result`: positions among the tensors that are given and made; `single`: not as a tuple.
  // Raises ValueError for positions that there are not.
  RepeatedLaunches(RepeatedWays ways, RepeatedMemory memory, std::vector<RepeatedStep> steps,
                   std::vector<std::size_t> result, bool single);

  // (list of tensors, list of their addresses) -> the result; None where nothing was launched.
  // Raises CudaError for a launch that fails.
  pybind11::object again(pybind11::handle given, pybind11::handle at);

  // The same of `n` tensors, whose addresses `at` begins with.
  pybind11::object start(PyObject* const* given, std::size_t n, Addresses& at);

 private:
  static constexpr std::size_t kMostParameters = 64;

  // Whether launches may go to the device now, and nobody wants to see them.
  bool is_ready() const;
  // Whether the tensors still have the memory, and lie apart.
  bool is_held(PyObject* const* given, const Addresses& at) const;
  // Where scratch memory begins among the addresses, and whether it was the last tensor made.
  std::size_t first_scratch() const;
  bool scratch_is_made() const { return !memory_.scratch.empty() && memory_.kept.scratch == 0; }
  // False where there can be none now.
  bool put_kept(Addresses& at, void* stream);
  // False where the thread has no context yet, and nothing was launched.
  bool launch(const Addresses& at, void* stream);
  int start_kernel(const RepeatedStep& step, void* stream, void** parameters) const;

  RepeatedWays ways_;
  std::int64_t device_;
  RepeatedMemory memory_;
  std::vector<RepeatedStep> steps_;
  std::vector<std::size_t> result_;
  bool single_;
};

}  // namespace flash
