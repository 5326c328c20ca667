// Argument records out of the bytes that Python packed.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

namespace flash {

// `name`: of its type.
template <typename Record>
Record record_of(const pybind11::bytes& args, const char* name) {
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(args.ptr()));
  if (size != sizeof(Record)) {
    throw std::invalid_argument("args has " + std::to_string(size) + " bytes: expected the " +
                                std::to_string(sizeof(Record)) + " of " + name +
                                " (flash_helpers and flash_attention._C are of different "
                                "versions: rebuild)");
  }
  Record record;
  std::memcpy(&record, PyBytes_AS_STRING(args.ptr()), sizeof(record));
  return record;
}

}  // namespace flash
