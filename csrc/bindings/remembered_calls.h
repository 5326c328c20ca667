// Finds the call that is repeated (operators/remembered.py) by what it was called with. Whatever is
// unusual is left to Python, which asks the same.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace flash {

struct RememberedWays {
  std::vector<pybind11::object> quiet;  // () -> 0, False or None while nobody has to see calls
  pybind11::object levels;  // a module whose _current_level is negative while derivatives are not
                            // taken forward
  pybind11::object is_grad_enabled;
  std::vector<pybind11::object> tensors;  // the types of tensors
  std::vector<pybind11::object> others;   // of what is compared by its value
};

class RememberedCalls {
 public:
  explicit RememberedCalls(RememberedWays ways);

  // (tuple of positional, dict of named arguments) -> the result; None where nothing was launched.
  pybind11::object again(pybind11::handle given, pybind11::handle named);

  // `like` (tensors…) -> whether they are as those of this call; `launches` (list of tensors, list
  // of their addresses) -> as again(). The tensors are aligned, and no two are in one place.
  void remember(pybind11::handle given, pybind11::handle named, pybind11::object like,
                pybind11::object launches);

  std::size_t size() const { return calls_.size(); }

 private:
  struct Arguments;
  struct Call {
    std::vector<pybind11::object> names;
    std::vector<pybind11::object> values;  // nothing for a tensor
    std::vector<pybind11::object> types;
    bool grad_enabled;
    pybind11::object like;
    pybind11::object launches;
  };

  // False where there is no tensor, or something that is neither that nor compared.
  bool read(pybind11::handle given, pybind11::handle named, Arguments& found) const;
  bool is_quiet() const;
  static bool matches(const Call& call, const Arguments& arguments);

  static constexpr std::size_t kMostCalls = 4096;

  RememberedWays ways_;
  std::unordered_multimap<std::uint64_t, Call> calls_;
};

}  // namespace flash
