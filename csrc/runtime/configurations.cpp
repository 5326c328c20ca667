#include "configurations.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace flash {
namespace {

constexpr struct {
  Variant variant;
  std::string_view name;
} kNames[] = {
    {Variant::kWhole, "whole"},   {Variant::kAny, "any"},         {Variant::kDots, "dots"},
    {Variant::kKeys, "keys"},     {Variant::kQueries, "queries"}, {Variant::kRound, "round"},
    {Variant::kAppend, "append"}, {Variant::kServe, "serve"},     {Variant::kCombine, "combine"}};

// Neither vector ever grows beyond what it reserved, so that launches in other threads may read
// what is there while something is added.
class Table {
 public:
  Table() {
    const auto built = kernels();
    rows_.reserve(built.size() + kMostLoaded);
    configurations_.reserve(built.size() + kMostLoaded);
    for (std::size_t begin = 0; begin < built.size();) {
      std::size_t end = begin + 1;
      while (end < built.size() &&
             std::strcmp(built[end].configuration, built[begin].configuration) == 0) {
        ++end;
      }
      add(built.subspan(begin, end - begin));
      begin = end;
    }
  }

  std::size_t add(std::span<const KernelEntry> rows) {
    const std::lock_guard lock(mutex_);
    if (rows_.size() + rows.size() > rows_.capacity()) {
      throw std::length_error(std::to_string(kMostLoaded) +
                              " kernels were loaded beside those of the build: there is no place "
                              "for more in this process");
    }
    const KernelEntry* const first = rows_.data() + rows_.size();
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    configurations_.emplace_back(first, rows.size());
    return n_configurations_.fetch_add(1, std::memory_order_release);
  }

  std::span<const Configuration> configurations() const {
    return {configurations_.data(), n_configurations_.load(std::memory_order_acquire)};
  }

  std::size_t index_of(const KernelEntry& row) const {
    return static_cast<std::size_t>(&row - rows_.data());
  }

 private:
  std::mutex mutex_;
  std::vector<KernelEntry> rows_;
  std::vector<Configuration> configurations_;
  std::atomic<std::size_t> n_configurations_ = 0;
};

// Never freed: launches may be under way until the process ends.
Table& table() {
  static Table* const kept = new Table;
  return *kept;
}

}  // namespace

std::span<const Configuration> configurations() { return table().configurations(); }

std::size_t add_configuration(std::span<const KernelEntry> rows) { return table().add(rows); }

std::size_t index_of(const KernelEntry& row) { return table().index_of(row); }

bool is_loaded(const KernelEntry& row) { return index_of(row) >= kernels().size(); }

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
                              "': expected whole or any, dots, keys, queries or round, serve or "
                              "combine");
}

}  // namespace flash
