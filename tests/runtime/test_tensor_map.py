"""Tensor maps without a GPU: the runtime's code, linked with a stand-in for the driver that prints
what it is asked to encode."""

from __future__ import annotations

from flash_helpers.kernel_configs import parse_kernel_name_into_config
from tests.cpp_programs import lines_of, runtime_flags, runtime_sources

STAND_IN = r"""
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstdio>
#include <cstring>

static bool has_driver = true;
static bool has_context = true;
static bool finds_context = true;

static CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                       const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                       const cuuint32_t* steps, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill) {
  if (!has_context) return CUDA_ERROR_INVALID_CONTEXT;
  static int calls = 0;
  std::memset(map, ++calls, sizeof(*map));
  std::printf("encode type %d rank %u at %p sizes", type, rank, address);
  for (unsigned i = 0; i < rank; ++i) std::printf(" %llu", (unsigned long long)sizes[i]);
  std::printf(" strides");
  for (unsigned i = 0; i + 1 < rank; ++i) std::printf(" %llu", (unsigned long long)strides[i]);
  std::printf(" box");
  for (unsigned i = 0; i < rank; ++i) std::printf(" %u", box[i]);
  std::printf(" steps");
  for (unsigned i = 0; i < rank; ++i) std::printf(" %u", steps[i]);
  std::printf(" interleave %d swizzle %d promotion %d fill %d\n", interleave, swizzle, promotion,
              fill);
  for (unsigned i = 0; i + 1 < rank; ++i) {
    if (strides[i] % 16 != 0 || strides[i] >= 1ull << 40) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

extern "C" {
cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
  const bool known = has_driver && std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&encode) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return find(name, function, found);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  *value = 132 + device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 5;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  std::printf("device %d\n", device);
  has_context = finds_context;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
}

#include "flash/core/error.h"
#include "sm90/launch.h"
#include "sm90/tensor_map.h"
"""

KERNEL = parse_kernel_name_into_config(
    "(BF16, 128, 128, 176, 2, 2, 1): hopper+lazy+overlap+pingpong+oinq"
)
CONFIG = f"constexpr auto kConfig = {KERNEL.to_cpp_struct()};\n"
CONFIG += """
flash::ForwardArgs example() {
  flash::ForwardArgs args{};
  args.q = reinterpret_cast<void*>(0x1000);
  args.k = reinterpret_cast<void*>(0x2000);
  args.v = reinterpret_cast<void*>(0x3000);
  args.o = reinterpret_cast<void*>(0x4000);
  args.q_stride_batch = 8000; args.q_stride_seq = 512; args.q_stride_head = 128;
  args.k_stride_batch = 9000; args.k_stride_seq = 256; args.k_stride_head = 136;
  args.v_stride_batch = 9008; args.v_stride_seq = 264; args.v_stride_head = 144;
  args.o_stride_batch = 8008; args.o_stride_seq = 520; args.o_stride_head = 152;
  args.batch = 3; args.seqlen_q = 15; args.seqlen_k = 30; args.n_heads_q = 4; args.n_heads_kv = 2;
  args.softmax_scale = 0.5f; args.causal = 1;
  return args;
}
"""


def run(main: str, before: str = "") -> list[str]:
    """The lines that a program prints, given the body of its main() and what stands before it."""
    text = f"{STAND_IN}{before}int main() {{ {main} }}\n"
    sources = runtime_sources("sm90/tensor_map", "sm90/launch", "error", "driver_entry")
    return lines_of(text, sources=sources, flags=runtime_flags())


END = " steps 1 1 1 1 1 interleave 0 swizzle 3 promotion 2 fill 0"


def test_the_maps_of_a_launch() -> None:
    """Every tensor with its own strides in bytes; the second launch encodes nothing."""
    main = """
    for (int i = 0; i < 2; ++i) {
      const auto a = flash::sm90::kernel_args(kConfig, example(), nullptr);
      std::printf("%d %d %d %d | %d %d %d %d %d %d %g %d\\n", a.q.opaque[5], a.k.opaque[5],
                  a.v.opaque[5], a.o.opaque[5], a.batch, a.seqlen_q, a.seqlen_k, a.n_heads_q,
                  a.n_heads_kv, a.causal, a.softmax_scale, a.heads_per_section);
    }"""
    values = "1 2 3 4 | 3 15 30 4 2 1 0.5 12"
    assert run(main, CONFIG) == [
        "encode type 9 rank 5 at 0x1000 sizes 64 15 2 4 3 strides 1024 128 256 16000"
        " box 64 64 2 1 1" + END,
        "encode type 9 rank 5 at 0x2000 sizes 64 30 2 2 3 strides 512 128 272 18000"
        " box 64 176 2 1 1" + END,
        "encode type 9 rank 5 at 0x3000 sizes 64 30 2 2 3 strides 528 128 288 18016"
        " box 64 176 2 1 1" + END,
        "encode type 9 rank 5 at 0x4000 sizes 64 15 2 4 3 strides 1040 128 304 16016"
        " box 64 16 2 1 1" + END,
        values,
        values,
    ]  # fmt: skip


def test_a_thread_without_a_context_gets_one() -> None:
    """Asked for once; a context that stays away is an error in words."""
    main = """
    flash::sm90::TensorMapKey key{reinterpret_cast<void*>(0x1000), 8000, 512, 128, 3, 15, 4, 128,
                                  64, 128, flash::DType::kFP16};
    has_context = false;
    std::printf("%d\\n", flash::sm90::tensor_map(key).opaque[0]);
    has_context = finds_context = false;
    key.batch = 4;
    try {
      flash::sm90::tensor_map(key);
    } catch (const std::exception& error) {
      std::printf("%.45s\\n", error.what());
    }"""
    first, encoded, value, second, refused = run(main)
    assert (first, value, second) == ("device 5", "1", "device 5")
    assert encoded.startswith("encode type 6 rank 5 at 0x1000")
    assert refused == "cuTensorMapEncodeTiled failed (CUresult 201) "


def test_every_field_of_a_key_counts() -> None:
    """Keys that differ in one field are different maps; those of many tensors, far more than the
    cache holds, are right as well."""
    main = """
    using flash::sm90::TensorMapKey;
    const TensorMapKey key{reinterpret_cast<void*>(0x1000), 8000, 512, 128, 3, 15, 4, 128,
                                  64, 128, flash::DType::kFP16};
    auto changed = key; changed.address = reinterpret_cast<void*>(0x1010);
    TensorMapKey keys[] = {key, changed, key, key, key, key, key, key, key, key, key, key};
    keys[2].stride_batch += 8; keys[3].stride_seq += 8; keys[4].stride_head += 8;
    keys[5].batch += 1; keys[6].seqlen += 1; keys[7].n_heads += 1; keys[8].d_head = 192;
    keys[9].box_rows = 16; keys[10].swizzle_bytes = 64; keys[11].dtype = flash::DType::kBF16;
    for (const auto& k : keys) flash::sm90::tensor_map(k);
    std::printf("again\\n");
    for (int round = 0; round < 2; ++round) {
      for (std::uintptr_t i = 1; i <= 100; ++i) {
        auto k = key; k.address = reinterpret_cast<void*>(i << 12);
        const int first = flash::sm90::tensor_map(k).opaque[0];
        if (flash::sm90::tensor_map(k).opaque[0] != first) std::printf("not kept\\n");
      }
    }"""
    first, _, again = "\n".join(run(main)).partition("again\n")
    encoded = first.splitlines()
    assert len(set(encoded)) == len(encoded) == 12
    addresses = [line.split()[6] for line in again.splitlines()]
    assert "not kept" not in again and set(addresses) >= {hex(i << 12) for i in range(2, 101)}
    assert len(addresses) <= 200


def test_dimensions_of_one_element_and_of_none() -> None:
    """Their strides are never used, so any stride will do; without keys, any address."""
    main = """
    auto args = example();
    args.batch = args.seqlen_q = args.n_heads_q = args.n_heads_kv = 1;
    args.q_stride_batch = args.q_stride_seq = args.q_stride_head = 0;
    args.o_stride_batch = int64_t{1} << 50; args.o_stride_seq = 3; args.o_stride_head = 1;
    args.seqlen_k = 0; args.k = args.v = nullptr; args.k_stride_seq = 5;
    std::printf("%d\\n", flash::sm90::kernel_args(kConfig, args, nullptr).heads_per_section);"""
    q, k, v, o, heads = run(main, CONFIG)
    assert "at 0x1000 sizes 64 1 2 1 1 strides 256 128 256 256 box 64 64" in q
    assert "at 0x1000 sizes 64 1 2 1 1 strides 256 128 256 256 box 64 176" in k
    assert v == k
    assert "at 0x4000 sizes 64 1 2 1 1 strides 256 128 256 256 box 64 16" in o
    assert heads == "1"


def test_heads_whose_keys_and_values_share_l2() -> None:
    """40 MB, and at most 32 KV heads: at 8192 keys of d 128 one has 4 MiB."""
    main = """
    auto args = example();
    args.n_heads_q = 64; args.batch = 4;
    int heads[9], n = 0;
    for (int kv_heads : {64, 8, 1}) {
      for (int keys : {128, 8192, 1 << 20}) {
        args.n_heads_kv = kv_heads; args.seqlen_k = keys;
        heads[n++] = flash::sm90::kernel_args(kConfig, args, nullptr).heads_per_section;
      }
    }
    for (int h : heads) std::printf("%d ", h);
    std::printf("%u %u\\n", flash::sm90::grid_size(5, 0), flash::sm90::grid_size(500, 1));
    """
    last = run(main, CONFIG)[-1]
    assert last == "32 9 1 256 72 1 256 256 1 5 133"


def test_a_refusal_shows_every_field() -> None:
    main = """
    auto args = example();
    args.k_stride_seq = int64_t{1} << 39;
    for (int i = 0; i < 2; ++i) {  // what was refused is not kept
      try { flash::sm90::kernel_args(kConfig, args, nullptr); std::printf("no error\\n"); }
      catch (const flash::CudaError& error) { std::printf("%s\\n", error.what()); }
    }"""
    said = [line for line in run(main, CONFIG) if not line.startswith("encode")]
    assert (
        said
        == [
            "cuTensorMapEncodeTiled failed (CUresult 1) for bf16 at 0x2000, "
            "sizes {64, 30, 2, 2, 3}, strides {1099511627776, 128, 272, 18000} bytes, "
            "box {64, 176, 2, 1, 1}, swizzle 128 bytes "
            "(dimensions: column, row, chunk, head, batch)"
        ]
        * 2
    )


def test_a_driver_without_tensor_maps() -> None:
    main = """
    has_driver = false;
    try { flash::sm90::prepare_tensor_maps(); std::printf("no error\\n"); }
    catch (const flash::CudaError& error) { std::printf("%s\\n", error.what()); }
    has_driver = true;  // the failure is not remembered
    flash::sm90::prepare_tensor_maps();
    std::printf("found\\n");"""
    said, found = run(main)
    assert "no cuTensorMapEncodeTiled" in said and "CUDA 12.0" in said and found == "found"


def test_a_repeated_launch_asks_for_nothing() -> None:
    """The record of a call that was made before costs neither the driver nor the heap anything: it
    takes a tenth of a microsecond of the 8 of a call."""
    counting = """
    #include <cstdlib>
    #include <new>
    static int n_allocations = 0;
    [[gnu::noinline]] void* operator new(std::size_t bytes) {
      ++n_allocations;
      return std::malloc(bytes);
    }
    [[gnu::noinline]] void operator delete(void* memory) noexcept {
      std::free(memory);
    }
    [[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
      std::free(memory);
    }
    """
    main = """
    auto args = example();
    flash::sm90::kernel_args(kConfig, args, nullptr);
    ::operator delete(::operator new(8));  // is counted
    std::printf("%d\\n", n_allocations);
    n_allocations = 0;
    for (int j = 0; j < 1000; ++j) flash::sm90::kernel_args(kConfig, args, nullptr);
    std::printf("%d\\n", n_allocations);"""
    *encoded, first, repeated = run(main, counting + CONFIG)
    assert [line.split()[0] for line in encoded] == ["encode"] * 4
    assert int(first) > 0 and repeated == "0"
