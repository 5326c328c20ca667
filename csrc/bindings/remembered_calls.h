// Finds the call that is repeated (operators/remembered.py) by what it was called with. Whatever is
// unusual is left to Python, which asks the same.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "repeated_launches.h"
#include "tensor_addresses.h"

namespace flash {

struct RememberedWays {
  // () -> 0, False or None while nobody has to see calls; or a ContextVar with such a value.
  std::vector<pybind11::object> quiet;
  pybind11::object levels;  // a module whose _current_level is negative while derivatives are not
                            // taken forward
  pybind11::object is_grad_enabled;
  std::vector<pybind11::object> tensors;  // the types of tensors
  std::vector<pybind11::object> others;   // of what is compared by its value
  TensorAddresses addresses;
};

class RememberedCalls {
 public:
  explicit RememberedCalls(RememberedWays ways);

  // (tuple of positional, dict of named arguments) -> the result; None where nothing was launched.
  pybind11::object again(pybind11::handle given, pybind11::handle named);

  // `like` (tensors…) -> whether they are as those of this call; `launches` (list of tensors, list
  // of their addresses) -> as again(), which is skipped where it is RepeatedLaunches' own.
  void remember(pybind11::handle given, pybind11::handle named, pybind11::object like,
                pybind11::object launches);

  std::size_t size() const { return calls_.size(); }

 private:
  struct Arguments;
  // Of a tensor: how far its address is beyond a multiple of 16, and the first tensors that begin
  // there and that are this one.
  struct Place {
    std::uint8_t beyond;
    std::uint8_t address;
    std::uint8_t tensor;
    bool operator==(const Place&) const = default;
  };
  struct Call {
    std::vector<pybind11::object> names;
    std::vector<pybind11::object> values;  // nothing for a tensor
    std::vector<pybind11::object> types;
    std::vector<Place> places;
    bool grad_enabled;
    pybind11::object like;  // of each tensor once
    pybind11::object launches;
    RepeatedLaunches* in_c;  // which launches are, if they are
  };

  // False where there is no tensor, or something that is neither that nor compared.
  bool read(pybind11::handle given, pybind11::handle named, Arguments& found) const;
  bool is_quiet() const;
  static void place(Arguments& arguments);
  static pybind11::object go(const pybind11::object& launches, RepeatedLaunches* in_c,
                             Arguments& arguments);
  static bool matches(const Call& call, const Arguments& arguments);

  static constexpr std::size_t kMostCalls = 4096;

  RememberedWays ways_;
  std::unordered_multimap<std::uint64_t, Call> calls_;
};

}  // namespace flash
