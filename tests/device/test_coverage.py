"""Every function of ptx/ and tile/, and of the family headers named here, is called by a test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.device.declared import declared, untested
from tests.device.launching import FOLDER

# Family headers that are tested here; the kernels' bodies are tested as whole kernels elsewhere.
FAMILY_HEADERS = [
    *(f"flash/sm80/forward/{name}.cuh" for name in
      ("block_copy", "bounds", "epilogue", "matmuls", "position", "softmax")),
    *(f"flash/sm90/{name}.cuh" for name in
      ("forward/epilogue", "mask", "matmuls", "ring", "schedule", "softmax", "storage")),
]  # fmt: skip
WITHOUT_FUNCTIONS = ["flash/ptx/cache_policy.cuh", "flash/ptx/device.cuh"]


def shared_headers(headers: Path) -> list[str]:
    """Those of ptx/ and tile/, as an #include names them."""
    folders = (headers / "flash" / name for name in ("ptx", "tile"))
    paths = sorted(path for folder in folders for path in folder.iterdir())
    return [str(path.relative_to(headers)) for path in paths]


def test_every_function_is_called_by_a_test(headers: Path) -> None:
    assert untested(headers, shared_headers(headers) + FAMILY_HEADERS, FOLDER) == []


def test_every_header_is_understood(headers: Path) -> None:
    names = shared_headers(headers) + FAMILY_HEADERS
    empty = [name for name in names if not declared((headers / name).read_text())]
    assert empty == WITHOUT_FUNCTIONS


HEADER = """
// FLASH_DEVICE void in_a_comment();
#define FLASH_DEVICE __device__ __forceinline__
constexpr int kValue = not_declared(1);
#define MAKE(N) \\
  template <> struct S<N> { \\
    FLASH_DEVICE static void of_a_macro(float (&d)[N]) {} \\
  }
template <typename T, int kCount = 3>
struct Box {
  int member;
  FLASH_DEVICE explicit Box(int x) : member(x) {}
  static constexpr int of_the_host(int a) { return called(a); }
  constexpr operator int() const { return 1; }
  FLASH_DEVICE const T& reference() const {
    if constexpr (kCount > 1) called();
    return x;
  }
 private:
  FLASH_DEVICE void hidden();
};
FLASH_DEVICE bool
on_two_lines(uint32_t a,
             int b) { return a == 1; }
inline int plain() { return 0; }
"""


def test_what_counts_as_declared() -> None:
    assert declared(HEADER) == {
        "of_a_macro", "Box", "of_the_host", "reference", "on_two_lines", "plain",
    }  # fmt: skip


@pytest.mark.parametrize(
    "function",
    ["FLASH_DEVICE float nobody_calls(float x) { return x; }",
     "template <int kN>\nstatic constexpr int nobody_calls() { return kN; }"],
)  # fmt: skip
def test_a_function_without_a_test_is_named(headers: Path, function: str, tmp_path: Path) -> None:
    copy = tmp_path / "include"
    shutil.copytree(headers, copy)
    header = copy / "flash" / "ptx" / "math.cuh"
    header.write_text(f"{header.read_text()}\n{function}\n")
    assert untested(copy, shared_headers(copy), FOLDER) == ["flash/ptx/math.cuh: nobody_calls"]


def test_a_kernel_without_a_test_does_not_count(headers: Path, tmp_path: Path) -> None:
    kernel = (FOLDER / "ptx" / "math.cu").read_text()
    (tmp_path / "math.cu").write_text(kernel)
    name = "flash/ptx/math.cuh"
    everything = [f"{name}: {f}" for f in sorted(declared((headers / name).read_text()))]
    assert untested(headers, [name], tmp_path) == everything
    (tmp_path / "test_math.py").write_text('FILE = "math.cu"\n')
    assert untested(headers, [name], tmp_path) == []
    (tmp_path / "math.cu").write_text(kernel.replace("ptx::rcp(", "// ptx::rcp("))
    assert untested(headers, [name], tmp_path) == [f"{name}: rcp"]
