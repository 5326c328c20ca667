"""What a kernel depends on: the staged copies, and never the originals that their `#line` names."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flash_helpers.build.staging import read_sources, stage, without_originals
from flash_helpers.compilers.toolchain import find_nvcc

from .remembering import Toolchain
from .stand_ins import QuickTree, make_toolchain, quick_tree
from .test_staging import LAUNCHER

Output = pytest.CaptureFixture[str]
# Names that once were the pattern by which originals were told from copies; each worked alone.
STRANGE = "o'brien, (x) & 100%=@+~!{a}/ünder 日本 #*<>^?:"
PLACES = ("tree", "csrc/include/tree", "previous_kernels/staged", STRANGE)
SOME = ("csrc/include/tree", STRANGE)


@pytest.fixture(scope="module")
def toolchain(needs_compilers: None) -> Toolchain:
    return make_toolchain()


def originals(tree: QuickTree) -> Iterator[Path]:
    for folder in ("csrc", "previous_kernels"):
        yield from (path for path in (tree.root / folder).rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "place", [pytest.param(p, marks=() if p in SOME else pytest.mark.slow) for p in PLACES]
)
def test_content_decides_and_no_time_stamp(
    tmp_path: Path, toolchain: Toolchain, place: str, capfd: Output
) -> None:
    tree = quick_tree(tmp_path / place, toolchain)
    tree.build()
    for path in originals(tree):
        path.touch()
    capfd.readouterr()
    tree.build()
    assert "no work to do" in capfd.readouterr().out
    header = tree.root / "csrc" / "include" / "flash" / "sm80" / "forward" / "forward.cuh"
    step = next((tree.root / "previous_kernels").rglob("*.cuh"))
    for changed in (header, step):
        changed.write_text(changed.read_text() + "// changed\n")
        tree.build()
        assert "CUDA object" in capfd.readouterr().out, changed


@pytest.mark.parametrize("place", PLACES)
def test_what_nvcc_lists(tmp_path: Path, needs_compilers: None, place: str) -> None:
    """The real compiler, in a build directory of its own."""
    root = tmp_path / place
    build = root / "build"
    for folder in ("csrc/include", "previous_kernels/01_a", "csrc/other"):
        (root / folder).mkdir(parents=True)
    (root / "csrc" / "include" / "a.h").write_text('#include "previous_kernels/01_a/b.cuh"\n')
    (root / "previous_kernels" / "01_a" / "b.cuh").write_text("constexpr int kB = 1;\n")
    (root / "csrc" / "other" / "c.h").write_text("constexpr int kC = 1;\n")
    staged = read_sources(root / "csrc", ["include"]) | read_sources(root, ["previous_kernels"])
    stage(staged, build / "staged")
    lines = without_originals(root / "csrc", ["include"])
    (build / "originals.sed").write_text(lines + without_originals(root, ["previous_kernels"]))
    # A file of the checkout that is no original (a toolkit may lie there) stays a dependency.
    other = f'#line 1 "{root}/csrc/other/c.h"\nconstexpr int kC = 1;\n#line 3 "k.cu"\n'
    kernel = f'#include "a.h"\n{other}__global__ void k(int* a) {{ *a = kB + kC; }}\n'
    (build / "k.cu").write_text(kernel)
    nvcc = str(find_nvcc().path)
    done = subprocess.run(
        ["/bin/sh", str(LAUNCHER), nvcc, "-arch=sm_80", f"-I{build}/staged/include",
         f"-I{build}/staged", "-MD", "-MT", "k.o", "-MF", "k.o.d",
         "-c", f"{build}/k.cu", "-o", "k.o"],
        cwd=build, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (build / "k.o.d").read_text().replace("\\ ", " ")
    names = {line.strip(" \\") for line in text.splitlines()}
    assert {"staged/include/a.h", "staged/previous_kernels/01_a/b.cuh"} <= names
    assert "k.o : k.cu" in names
    ours = {name for name in names if name.startswith(f"{root}/")}
    assert ours == {f"{root}/csrc/other/c.h"}
