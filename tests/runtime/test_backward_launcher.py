"""Launches of backward passes without a GPU: linked with a stand-in for CUDA, and with a made-up
table of one configuration of the Ampere family's."""

from __future__ import annotations

import re
import subprocess

import pytest

from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.toolchain import find_nvcc
from flash_helpers.kernels.backward_config import Sizes
from flash_helpers.kernels.contract import Variant
from tests.config.test_backward_configs import CONFIG
from tests.runtime.test_launcher import CSRC, TOY

SIZES = Sizes(batch=2, seqlen_q=130, seqlen_k=129, n_heads_q=6, n_heads_kv=3)

MAIN = r"""
#include "backward_launcher.h"
#include "flash/sm80_bwd/config.h"
namespace flash::sm80_bwd { extern const Family kFamily; }
namespace bwd = flash::sm80_bwd;
using flash::Variant;
constexpr auto kConfig = CONFIG;
static const flash::KernelEntry kKernels[] = {
    kernel_entry("forward", Variant::kAny, flash::toy::kFamily, flash::toy::kBoth, "forward"),
    kernel_entry("backward", Variant::kDots, bwd::kFamily, kConfig, "dots"),
    kernel_entry("backward", Variant::kKeys, bwd::kFamily, kConfig, "keys"),
    kernel_entry("backward", Variant::kQueries, bwd::kFamily, kConfig, "queries")};
std::span<const flash::KernelEntry> flash::kernels() { return kKernels; }

static void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

static flash::BackwardArgs args() {
  flash::BackwardArgs args{};
  args.q = args.k = args.v = args.o = args.d_o = at(0x1000);
  args.lse = static_cast<float*>(at(0x1004));
  args.row_stats = static_cast<float*>(at(0x2000));
  args.d_q = args.d_k = args.d_v = at(0x3000);
  args.batch = 2; args.seqlen_q = 130; args.seqlen_k = 129;
  args.n_heads_q = 6; args.n_heads_kv = 3; args.softmax_scale = 1;
  return args;
}

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
  launch("d_o null", [](auto& a) { a.d_o = nullptr; });
  launch("lse null", [](auto& a) { a.lse = nullptr; });
  launch("d_k misaligned", [](auto& a) { a.d_k = at(0x3008); });
  launch("stride", [](auto& a) { a.d_o_stride_head = 12; });
  launch("heads", [](auto& a) { a.n_heads_q = 7; });
  launch("too many", [](auto& a) { a.batch = a.seqlen_q = 1 << 30; });
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


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each launch printed, by its name."""
    try:
        cuda_include = find_nvcc().include_dir
    except BuildError as error:
        pytest.skip(f"no CUDA headers: {error}")
    folder = tmp_path_factory.mktemp("backward")
    toy = TOY.partition("static const flash::KernelEntry kKernels[]")[0]
    text = toy.replace("4096", "232448") + MAIN.replace("CONFIG;", f"{CONFIG.to_cpp_struct()};", 1)
    (folder / "main.cpp").write_text(text)
    names = ("launcher", "backward_launcher", "backward_checks", "configurations",
             "forward_checks", "error", "sm80_bwd")  # fmt: skip
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    command += [f"-I{CSRC / 'include'}", f"-I{CSRC / 'runtime'}", "-isystem", str(cuda_include)]
    command += ["main.cpp", *(str(CSRC / "runtime" / f"{name}.cpp") for name in names)]
    subprocess.run([*command, "-o", "main"], cwd=folder, check=True, timeout=300)
    ran = subprocess.run([folder / "main"], capture_output=True, text=True, check=True)
    parts = re.split(r"^# (.*)\n", ran.stdout, flags=re.M)[1:]
    return {name: text.splitlines() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def launches(variants: tuple[Variant, ...]) -> list[str]:
    return [
        f"launch {v.value} {CONFIG.grid(v, SIZES)} x {CONFIG.threads_of(v)}, "
        f"{CONFIG.smem_of(v)} bytes, record 4096, stream 0x50"
        for v in variants
    ]


def launched(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("launch")]


def test_kernels_follow_each_other_with_python_s_grids(said: dict[str, list[str]]) -> None:
    assert launched(said["all"]) == launches(CONFIG.variants())
    allowed = [line for line in said["all"] if line.startswith("allow")]
    assert allowed == [f"allow {v.value} {CONFIG.smem_of(v)}" for v in CONFIG.variants()]


def test_what_nobody_wants_is_not_launched(said: dict[str, list[str]]) -> None:
    dots, keys, queries = CONFIG.variants()
    for name, variants in (
        ("keys", (dots, keys)), ("d_q alone", (dots, queries)), ("d_v alone", (dots, keys)),
        ("no keys", (dots, queries)),
    ):  # fmt: skip
        assert launched(said[name]) == launches(variants), name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("d_o null", "backward: d_o is null"),
        ("lse null", "backward: lse is null"),
        ("d_k misaligned", "backward: d_k is not aligned to 16 bytes"),
        ("stride", "backward: d_o_stride_head = 12 elements: expected a multiple of 8"),
        ("heads", "backward: n_heads_q = 7: expected a multiple of n_heads_kv = 3"),
        ("too many", "backward: query blocks (of 16 rows) * heads * batch exceed 2147483647"),
    ],
)
def test_refused(said: dict[str, list[str]], name: str, words: str) -> None:
    assert said[name] == [words]


def test_a_pass_is_not_the_other(said: dict[str, list[str]]) -> None:
    assert said["forward"] == [
        "forward: is of a forward pass: it computes no gradients",
        "backward: is of a backward pass: it computes gradients alone",
        "backward has no kernel any",
    ]
