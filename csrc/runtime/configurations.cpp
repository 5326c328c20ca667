#include "configurations.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace flash {
namespace {

constexpr struct {
  Variant variant;
  std::string_view name;
} kNames[] = {{Variant::kWhole, "whole"},     {Variant::kAny, "any"},
              {Variant::kDots, "dots"},       {Variant::kKeys, "keys"},
              {Variant::kQueries, "queries"}, {Variant::kRound, "round"}};

std::vector<Configuration> by_configuration(std::span<const KernelEntry> table) {
  std::vector<Configuration> found;
  for (std::size_t begin = 0; begin < table.size();) {
    std::size_t end = begin + 1;
    while (end < table.size() &&
           std::strcmp(table[end].configuration, table[begin].configuration) == 0) {
      ++end;
    }
    found.push_back(table.subspan(begin, end - begin));
    begin = end;
  }
  return found;
}

}  // namespace

std::span<const Configuration> configurations() {
  static const std::vector<Configuration> found = by_configuration(kernels());
  return found;
}

Configuration configuration_of(std::size_t kernel_id) {
  const auto all = configurations();
  if (kernel_id < all.size()) return all[kernel_id];
  throw std::out_of_range("kernel id " + std::to_string(kernel_id) + ": this build has " +
                          std::to_string(all.size()) + " kernels");
}

std::string_view name_of(Variant variant) {
  for (const auto& entry : kNames) {
    if (entry.variant == variant) return entry.name;
  }
  throw std::logic_error("a variant without a name");
}

Variant variant_of(std::string_view name) {
  for (const auto& entry : kNames) {
    if (entry.name == name) return entry.variant;
  }
  throw std::invalid_argument("variant '" + std::string(name) +
                              "': expected whole or any, dots, keys, queries or round");
}

}  // namespace flash
