"""Compilers that do almost nothing, for tests of what is built when: a whole build takes seconds.

They answer and work as the real ones for CMake, whose questions they pass on. For our own units
they write an empty object, the dependencies that nvcc would list (staged copies, and the originals
that their `#line` names), and for kernels what ptxas says.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.build.driver import build_plan
from flash_helpers.build.plan import Plan, make_plan
from flash_helpers.compilers.toolchain import find_host_compiler

from .conftest import ROOT
from .remembering import NVCC_BEGINS, Toolchain, kept_folder, write_nvcc, write_program

_UNITS = r"""
if [ ! -f @STORE@/empty.o ]; then
  made=$(mktemp @STORE@/made.XXXXXX) || exit
  echo | g++ -x c++ -c - -o "$made" && mv "$made" @STORE@/empty.o || exit
fi
cp @STORE@/empty.o "$object" || exit
{
  printf '%s\n' "$unit"
  find staged -type f
  case $unit in *.cu) find staged -type f -exec sed -s -n '1s/^#line 1 "\(.*\)"$/\1/p' {} + ;; esac
} | sed 's/ /\\ /g; s/^/    /; $!s/$/ \\/' >"$dependencies"
sed -i "1s|^|$object :|" "$dependencies"
case $unit in *.cpp) exit ;; esac
for target in $(printf '%s\n' "$@" | sed -n 's/.*code=\(sm_.*\)/\1/p'); do
  for kernel in $(sed -n 's/^\(flash_fwd_[a-z0-9_]*\)(.*/\1/p' "$unit"); do
    echo "ptxas info    : Compiling entry function '$kernel' for '$target'"
    echo "ptxas info    : Function properties for $kernel"
    echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    echo "ptxas info    : Used 100 registers, used 1 barriers"
  done
done
"""


def make_toolchain() -> Toolchain:
    """Stand-ins for nvcc and g++."""
    folder = kept_folder(_UNITS)
    nvcc = write_nvcc(folder / "toolkit", _UNITS, folder)
    places = {"REAL": find_host_compiler().path, "HERE": folder, "STORE": folder}
    return Toolchain(nvcc, write_program(folder / "g++", NVCC_BEGINS + _UNITS, places))


@dataclass(frozen=True)
class QuickTree:
    """The sources under another root, built by stand-ins within this process."""

    plan: Plan

    @property
    def root(self) -> Path:
        return self.plan.root

    @property
    def directory(self) -> Path:
        return self.plan.directory

    @property
    def library(self) -> Path:
        return self.root / "flash_attention" / self.plan.extension_name

    def build(self, publish_to: Sequence[Path] = ()) -> None:
        build_plan(self.plan, None, [self.library.parent, *publish_to])


def quick_tree(root: Path, toolchain: Toolchain, n_kernels: int = 2) -> QuickTree:
    """Nothing is built yet."""
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("csrc", "previous_kernels"):
        shutil.copytree(ROOT / name, root / name, ignore=ignore)
    shutil.copy2(ROOT / "CMakeLists.txt", root)
    environ = {"KERNELS": "prog", "TORCH_CUDA_ARCH_LIST": "8.0", **toolchain.environ()}
    plan = make_plan({**os.environ, **environ})
    return QuickTree(dataclasses.replace(plan, root=root, configs=plan.configs[:n_kernels]))
