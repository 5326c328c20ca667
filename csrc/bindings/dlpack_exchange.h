// The part of the DLPack 1.x ABI that reads a tensor's description from its Python object
// (https://dmlc.github.io/dlpack, "__dlpack_c_exchange_api__"; PyTorch has it since 2.10).
//
// It is a table of C functions in a capsule, so it works across torch versions without torch's
// headers or libraries: one call of some ten nanoseconds replaces five attribute look-ups.
#pragma once

#include <cstdint>

namespace flash::dlpack {

constexpr const char* kCapsuleName = "dlpack_exchange_api";
constexpr std::uint32_t kMajorVersion = 1;
constexpr std::int32_t kDeviceCuda = 2;
constexpr std::uint8_t kFloat = 2;  // a DataType's code

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;    // borrowed from the tensor
  std::int64_t* strides;  // in elements, borrowed
  std::uint64_t byte_offset;
};

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;
};

struct ExchangeApi {
  ExchangeHeader header;
  void* allocate;             // unused here
  void* managed_from_object;  // unused here
  void* managed_to_object;    // unused here
  // Fills `out` from a tensor object; 0 on success. May be null.
  int (*tensor_from_object)(void* object, Tensor* out);
  // The stream that the framework would launch on; 0 on success.
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace flash::dlpack
