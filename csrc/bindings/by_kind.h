// What Python answers for a kind of call, asked once.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "launch_cache.h"

namespace flash {

template <std::size_t kWords>
class ByKind {
 public:
  using Key = std::array<std::int64_t, kWords>;

  // `ask` () -> the answer. `owner` is kept alive: its address may stand in the key.
  template <typename Ask>
  pybind11::object get(const Key& key, pybind11::handle owner, Ask ask) {
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second.second;
    pybind11::object answer = ask();  // which may come back here
    if (known_.size() >= kMost) known_.clear();
    known_.insert_or_assign(
        key, std::pair(pybind11::reinterpret_borrow<pybind11::object>(owner), answer));
    return answer;
  }

 private:
  static constexpr std::size_t kMost = 4096;  // as LaunchCache
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return hash_of(key); }
  };

  std::unordered_map<Key, std::pair<pybind11::object, pybind11::object>, KeyHash> known_;
};

}  // namespace flash
