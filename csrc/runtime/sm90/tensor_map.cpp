#include "sm90/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>

#include "driver_entry.h"
#include "flash/core/error.h"

namespace flash::sm90 {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

constexpr int kRank = 5;

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encoder() {
  void* const function = driver_entry("cuTensorMapEncodeTiled");
  if (function == nullptr) {
    throw CudaError(
        "this driver has no cuTensorMapEncodeTiled: kernels of the Hopper family need a driver of "
        "CUDA 12.0 or newer");
  }
  return reinterpret_cast<Encode>(function);
}

Encode encoder() {
  static const Encode encode = find_encoder();
  return encode;
}

CUtensorMapSwizzle swizzle_of(int32_t row_bytes) {
  if (row_bytes == 128) return CU_TENSOR_MAP_SWIZZLE_128B;
  if (row_bytes == 64) return CU_TENSOR_MAP_SWIZZLE_64B;
  return row_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_NONE;
}

// What the driver is told; innermost dimension first.
struct Fields {
  CUtensorMapDataType type;
  std::array<cuuint64_t, kRank> sizes;
  std::array<cuuint64_t, kRank - 1> strides;  // in bytes, from the second dimension on
  std::array<cuuint32_t, kRank> box;
  CUtensorMapSwizzle swizzle;
};

// A stride that is never used still has to be a multiple of 16 bytes below 2^40.
cuuint64_t stride_bytes(const TensorMapKey& key, int64_t stride, int32_t size) {
  return static_cast<cuuint64_t>(size > 1 ? stride : key.d_head) * bytes_of(key.dtype);
}

Fields fields_of(const TensorMapKey& key) {
  const auto columns = static_cast<cuuint32_t>(key.swizzle_bytes / bytes_of(key.dtype));
  const auto chunks = static_cast<cuuint32_t>(key.d_head) / columns;
  const auto box_chunks = static_cast<cuuint32_t>(key.box_chunks);
  const auto size = [](int32_t n) { return static_cast<cuuint64_t>(std::max(n, 1)); };
  const CUtensorMapDataType type = key.dtype == DType::kFP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if (key.group_heads > 0) {
    const int32_t groups = key.n_heads / key.group_heads;
    return {
        .type = type,
        .sizes = {size(key.d_head), size(key.group_heads), size(key.seqlen), size(groups),
                  size(key.batch)},
        .strides = {stride_bytes(key, key.stride_head, key.group_heads),
                    stride_bytes(key, key.stride_seq, key.seqlen),
                    stride_bytes(key, key.stride_head * key.group_heads, groups),
                    stride_bytes(key, key.stride_batch, key.batch)},
        .box = {columns, static_cast<cuuint32_t>(key.box_heads),
                static_cast<cuuint32_t>(key.box_rows), 1, 1},
        .swizzle = swizzle_of(key.swizzle_bytes),
    };
  }
  return {
      .type = type,
      .sizes = {columns, size(key.seqlen), chunks, size(key.n_heads), size(key.batch)},
      .strides = {stride_bytes(key, key.stride_seq, key.seqlen),
                  static_cast<cuuint64_t>(key.swizzle_bytes),
                  stride_bytes(key, key.stride_head, key.n_heads),
                  stride_bytes(key, key.stride_batch, key.batch)},
      .box = {columns, static_cast<cuuint32_t>(key.box_rows), box_chunks == 0 ? chunks : box_chunks,
              1, 1},
      .swizzle = swizzle_of(key.swizzle_bytes),
  };
}

template <typename List>
std::string text(const List& list) {
  std::ostringstream out;
  for (const auto& item : list) out << (out.tellp() > 0 ? ", " : "") << item;
  return "{" + out.str() + "}";
}

[[noreturn]] void throw_refused(CUresult status, const TensorMapKey& key, const Fields& fields) {
  std::ostringstream message;
  message << "cuTensorMapEncodeTiled failed (CUresult " << static_cast<int>(status) << ") for "
          << (key.dtype == DType::kFP16 ? "fp16" : "bf16") << " at " << key.address << ", sizes "
          << text(fields.sizes) << ", strides " << text(fields.strides) << " bytes, box "
          << text(fields.box) << ", swizzle " << key.swizzle_bytes << " bytes (dimensions: column, "
          << (key.group_heads > 0 ? "head, row, group of heads" : "row, chunk, head") << ", batch)";
  throw CudaError(message.str());
}

CUresult encode_fields(const TensorMapKey& key, const Fields& fields, CUtensorMap& encoded) {
  constexpr std::array<cuuint32_t, kRank> kElementStrides = {1, 1, 1, 1, 1};
  // L2 fetches no more than a row of a box has: with 256 bytes decodes of a latent cache with 64
  // heads took 4 to 7 % longer, and all else as long (docs/kernels/06-serving.md).
  return encoder()(&encoded, fields.type, kRank, const_cast<void*>(key.address),
                   fields.sizes.data(), fields.strides.data(), fields.box.data(),
                   kElementStrides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, fields.swizzle,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// A thread that has asked the runtime for nothing yet has no context, which the encoder needs.
void make_context_current() {
  int device = 0;
  FLASH_CHECK_CUDA(cudaGetDevice(&device));
  FLASH_CHECK_CUDA(cudaSetDevice(device));
}

void encode(const TensorMapKey& key, TensorMap& map) {
  const Fields fields = fields_of(key);
  // CUDA 13 declares its type with an alignment of 128; the device, and encoder and kernels in
  // practice, need 64.
  CUtensorMap encoded;
  CUresult status = encode_fields(key, fields, encoded);
  if (status == CUDA_ERROR_INVALID_CONTEXT) {
    make_context_current();
    status = encode_fields(key, fields, encoded);
  }
  if (status != CUDA_SUCCESS) throw_refused(status, key, fields);
  std::memcpy(&map, &encoded, sizeof(map));
}

// A key has four places; the one that was written longest ago is given up for a new key.
struct CacheSet {
  struct Entry {
    TensorMap map;
    TensorMapKey key;  // all zero: empty; no tensor has box_rows 0
  };
  std::array<Entry, 4> entries;
  unsigned next;
};

constexpr int kSetBits = 4;
using Cache = std::array<CacheSet, 1 << kSetBits>;

std::size_t set_of(const TensorMapKey& key) {
  const std::uint64_t mix = (reinterpret_cast<std::uintptr_t>(key.address) >> 4) ^
                            (static_cast<std::uint64_t>(key.seqlen) << 20) ^
                            (static_cast<std::uint64_t>(key.box_rows) << 40);
  return (mix * 0x9e3779b97f4a7c15u) >> (64 - kSetBits);
}

}  // namespace

const TensorMap& tensor_map(const TensorMapKey& key) {
  thread_local constinit Cache cache{};
  CacheSet& set = cache[set_of(key)];
  for (const CacheSet::Entry& entry : set.entries) {
    if (entry.key == key) return entry.map;
  }
  CacheSet::Entry& entry = set.entries[set.next++ % set.entries.size()];
  entry.key = {};  // should the driver refuse, the place is empty
  encode(key, entry.map);
  entry.key = key;
  return entry.map;
}

void prepare_tensor_maps() { encoder(); }

}  // namespace flash::sm90
