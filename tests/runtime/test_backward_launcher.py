"""Launches of backward passes without a GPU: linked with a stand-in for CUDA, and with a made-up
table of one configuration of a family."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.contract import Variant
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy
from tests.config.test_ampere_fused_backward_configs import CONFIG as AMPERE_FUSED
from tests.config.test_backward_configs import CONFIG as AMPERE
from tests.config.test_cluster_backward_configs import CONFIG as CLUSTER
from tests.config.test_fused_backward_configs import CONFIG as FUSED
from tests.config.test_hopper_backward_configs import CONFIG as HOPPER
from tests.config.test_serve_backward_configs import AMPERE as AMPERE_SERVE
from tests.config.test_serve_backward_configs import FUSED as FUSED_SERVE
from tests.cpp_programs import lines_of, runtime_flags, runtime_sources
from tests.runtime.test_launcher import TOY

SIZES = Sizes(batch=2, seqlen_q=130, seqlen_k=129, n_heads_q=6, n_heads_kv=3)

MAIN = r"""
#include "backward_launcher.h"
#include "flash/FAMILY/config.h"
namespace flash::FAMILY { extern const Family kFamily; }
namespace bwd = flash::FAMILY;
using flash::Variant;
constexpr auto kConfig = CONFIG;
constexpr bool kSums = SUMS;
static const flash::KernelEntry kKernels[] = {
    kernel_entry("forward", Variant::kAny, flash::toy::kFamily, flash::toy::kBoth, "forward"),
ENTRIES};
std::span<const flash::KernelEntry> flash::kernels() { return kKernels; }

static void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

static flash::BackwardArgs args() {
  flash::BackwardArgs args{};
  args.q = args.k = args.v = args.o = args.d_o = at(0x1000);
  args.lse = static_cast<float*>(at(0x1004));
  args.row_stats = static_cast<float*>(at(0x2000));
  if (kSums) args.d_q_sums = static_cast<float*>(at(0x2800));
  args.d_q = args.d_k = args.d_v = at(0x3000);
  args.batch = 2; args.seqlen_q = 130; args.seqlen_k = 129;
  args.n_heads_q = 6; args.n_heads_kv = 3; args.softmax_scale = 1;
  return args;
}

static const std::int32_t kStarts[3] = {};

template <typename Change>
static void launch(const char* what, Change&& change, std::size_t kernel = 1) {
  std::printf("# %s\n", what);
  flash::BackwardArgs changed = args();
  change(changed);
  try {
    flash::launch_backward(kernel, changed, 0, static_cast<cudaStream_t>(at(0x50)));
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}

int main() {
  launch("all", [](auto&) {});
  launch("keys", [](auto& a) { a.d_q = nullptr; });
  launch("d_q alone", [](auto& a) { a.d_k = a.d_v = nullptr; });
  launch("d_v alone", [](auto& a) { a.d_q = a.d_k = nullptr; });
  launch("no keys", [](auto& a) { a.seqlen_k = 0; a.k = nullptr; });
  launch("no queries", [](auto& a) { a.seqlen_q = 0; });
  launch("d_o null", [](auto& a) { a.d_o = nullptr; });
  launch("no sums", [](auto& a) { a.d_q_sums = nullptr; });
  launch("lse null", [](auto& a) { a.lse = nullptr; });
  launch("d_k misaligned", [](auto& a) { a.d_k = at(0x3008); });
  launch("stride", [](auto& a) { a.d_o_stride_head = 12; });
  launch("heads", [](auto& a) { a.n_heads_q = 7; });
  launch("a long stride", [](auto& a) { a.d_v_stride_seq = int64_t{1} << 39; });
  launch("too many", [](auto& a) { a.batch = a.seqlen_q = 1 << 30; });
  launch("packed", [](auto& a) { a.cu_seqlens_q = a.cu_seqlens_k = kStarts; });
  launch("no packed keys", [](auto& a) {
    a.cu_seqlens_q = a.cu_seqlens_k = kStarts;
    a.seqlen_k = 0;
  });
  launch("many sequences", [](auto& a) {
    a.cu_seqlens_q = a.cu_seqlens_k = kStarts;
    a.batch = 1 << 30;
  });
  launch("one start", [](auto& a) { a.cu_seqlens_q = kStarts; });
  launch("used", [](auto& a) { a.seqused_k = kStarts; });
  launch("a window", [](auto& a) { a.window_left = -1; });
  launch("a cap", [](auto& a) { a.softcap = -1.0f; });
  launch("forward", [](auto&) {}, 0);
  try {
    flash::launch(1, flash::ForwardArgs{}, 0, nullptr);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
  try {
    flash::kernel_attributes(1, 0, flash::Variant::kAny);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}
"""


# The driver: a map is its address.
DRIVER = r"""
#include <cuda.h>
#include <cstring>
static CUresult encode(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void* address,
                       const cuuint64_t*, const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                       CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill) {
  std::memcpy(map, &address, sizeof(address));
  return CUDA_SUCCESS;
}
static const bool is_found = (encoder = reinterpret_cast<void*>(&encode)) != nullptr;
"""


@dataclass(frozen=True)
class Tried:
    """A family's configuration, and what each launch printed, by its name."""

    config: BackwardKernelConfig
    records: tuple[int, ...]  # the first number of what each kernel gets
    said: dict[str, list[str]]

    def launches(self, variants: tuple[Variant, ...], sizes: Sizes = SIZES) -> list[str]:
        records = dict(zip(self.config.variants(), self.records, strict=True))
        early = "early: " if self.config.FAMILY in ("sm90_bwd_cluster", "sm90_bwd_fused") else ""
        return [
            f"{early}launch {v.value} {self.config.grid(v, sizes)} x {self.config.threads_of(v)}, "
            f"{self.config.smem_of(v)} bytes, record {records[v]}, stream 0x50"
            for v in variants
        ]


FUSED_SOURCES = ("sm90_bwd_fused/family", "sm90_bwd/launch", "sm90/launch", "sm90/tensor_map")
# By the family's name, and what is particular about the configuration.
FAMILIES: dict[str, tuple[BackwardKernelConfig, tuple[int, ...], tuple[str, ...], str]] = {
    "sm80_bwd": (AMPERE, (4096, 4096, 4096), ("sm80_bwd",), ""),
    "sm80_bwd_fused": (AMPERE_FUSED, (4096, 4096, 4096), ("sm80_bwd_fused",), ""),
    # Maps of nothing, of K and of Q.
    "sm90_bwd": (
        HOPPER, (0, 4096, 4096), ("sm90_bwd/family", "sm90_bwd/launch", "sm90/tensor_map"), DRIVER,
    ),
    "sm90_bwd_cluster": (
        CLUSTER, (0, 4096, 0),
        ("sm90_bwd_cluster/family", "sm90_bwd/launch", "sm90/launch", "sm90/tensor_map"), DRIVER,
    ),
    "sm90_bwd_fused": (FUSED, (0, 4096, 0), FUSED_SOURCES, DRIVER),
    "sm90_bwd_fused in order": (
        replace(FUSED, add_by=AddBy.IN_ORDER), (0, 4096), FUSED_SOURCES, DRIVER,
    ),
    "sm80_bwd_serve": (AMPERE_SERVE, (4096, 4096, 4096), ("sm80_bwd_serve",), ""),
    "sm90_bwd_fused_serve": (
        FUSED_SERVE, (0, 4096, 0),
        ("sm90_bwd_fused_serve/family", "sm90_bwd/launch", "sm90/tensor_map"), DRIVER,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def tried(request: pytest.FixtureRequest) -> Tried:
    config, records, sources, driver = FAMILIES[request.param]
    toy = TOY.partition("static const flash::KernelEntry kKernels[]")[0]
    main = MAIN.replace("CONFIG;", f"{config.to_cpp_struct()};", 1)
    entries = ",\n".join(
        f'    kernel_entry("backward", Variant::k{v.value.capitalize()}, bwd::kFamily, kConfig, '
        f'"{v.value}")'
        for v in config.variants()
    )
    sums = str("d_q_sums" in config.scratch()).lower()
    for word, text in (("FAMILY", request.param.split()[0]), ("ENTRIES", entries), ("SUMS", sums)):
        main = main.replace(word, text)
    main = toy.replace("4096", "232448") + driver + main
    names = ("launcher", "backward_launcher", "backward_checks", "configurations",
             "forward_checks", "error", "queue_blocks", "driver_entry", *sources)  # fmt: skip
    lines = lines_of(main, sources=runtime_sources(*names), flags=runtime_flags())
    parts = re.split(r"^# (.*)\n", "\n".join(lines) + "\n", flags=re.M)[1:]
    said = {name: text.splitlines() for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return Tried(config, records, said)


def launched(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(("launch", "early: launch"))]


def test_kernels_follow_each_other_with_python_s_grids(tried: Tried) -> None:
    config = tried.config
    assert launched(tried.said["all"]) == tried.launches(config.variants())
    allowed = [line for line in tried.said["all"] if line.startswith("allow")]
    assert allowed == [f"allow {v.value} {config.smem_of(v)}" for v in config.variants()]


def test_what_nobody_wants_is_not_launched(tried: Tried) -> None:
    dots, keys, *last = tried.config.variants()
    of_d_q = (dots, *last) if last == [Variant.QUERIES] else (dots, keys, *last)
    for name, variants in (
        ("keys", (dots, keys)), ("d_q alone", of_d_q), ("d_v alone", (dots, keys)),
        ("no keys", (dots, *last)),
    ):  # fmt: skip
        assert launched(tried.said[name]) == tried.launches(variants), name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no queries", "backward: seqlen_q = 0: expected at least 1"),
        ("d_o null", "backward: d_o is null"),
        ("lse null", "backward: lse is null"),
        ("d_k misaligned", "backward: d_k is not aligned to 16 bytes"),
        ("stride", "backward: d_o_stride_head = 12 elements: expected a multiple of 8"),
        ("heads", "backward: n_heads_q = 7: expected a multiple of n_heads_kv = 3"),
        ("too many", "backward: query blocks (of 16 rows) * heads * batch exceed 2147483647"),
    ],
)
def test_refused(tried: Tried, name: str, words: str) -> None:
    assert tried.said[name] == [words]


def test_packed_sequences_have_python_s_grids(tried: Tried) -> None:
    if not tried.config.SERVES:
        return
    packed = replace(SIZES, packed=True)
    variants = tried.config.variants()
    assert launched(tried.said["packed"]) == tried.launches(variants, packed)
    dots, _, last = variants
    none = replace(packed, seqlen_k=0)
    assert launched(tried.said["no packed keys"]) == tried.launches((dots, last), none)
    assert tried.said["many sequences"] == ["backward: too many sequences and heads"]
    assert tried.said["one start"] == ["backward: one of cu_seqlens_q and cu_seqlens_k is null"]
    assert tried.said["a window"] == ["backward: the window is negative"]
    of_copies = tried.config.FAMILY.startswith("sm90")
    cap = "softcap is not 0" if of_copies else "softcap is negative"
    assert tried.said["a cap"] == [f"backward: {cap}"]
    if of_copies:
        assert tried.said["used"] == ["backward: seqused without cu_seqlens"]


def test_sums_need_memory(tried: Tried) -> None:
    if "d_q_sums" in tried.config.scratch():
        assert tried.said["no sums"] == ["backward: d_q_sums is null"]
    else:
        assert launched(tried.said["no sums"]) == tried.launches(tried.config.variants())


def test_what_the_copy_engine_does_not_reach_is_refused(tried: Tried) -> None:
    said = tried.said["a long stride"]
    if tried.config.FAMILY.startswith("sm80_bwd"):
        assert launched(said) == tried.launches(tried.config.variants())
        return
    assert said == [
        f"backward: a stride of d_v is {1 << 39} elements: the copy engine takes 0 to 2^40 bytes, "
        "exclusive"
    ]


def test_a_pass_is_not_the_other(tried: Tried) -> None:
    assert tried.said["forward"] == [
        "forward: is of a forward pass: it computes no gradients",
        "backward: is of a backward pass: it computes gradients alone",
        "backward has no kernel any",
    ]
