"""What the documents show of the output of commands is what these print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .markdown import README, ROOT, SUPPORT, code_blocks

FOLDERS = ("csrc", "flash_attention", "previous_kernels", "py", "tools")
FILES = ("CMakeLists.txt", "pyproject.toml", "setup.py")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\bnan\b|-?\binf\b")


def shape(line: str) -> str:
    """A line without its figures, which differ between processors and seeds."""
    return re.sub(r"\s+", " ", NUMBER.sub("N", line)).strip()


def run_kernels(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    tool = root / "tools/benchmark/run_kernels.py"
    environment = os.environ | {"PYTHONPATH": f"{root / 'py'}:{root}"}
    command = [sys.executable, str(tool), *options, "--device", "emulator"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)


@pytest.mark.slow
def test_the_output_of_make_run() -> None:
    ran = run_kernels(ROOT, "--kernels", "prog", "--seed", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    printed = {shape(line) for line in ran.stdout.splitlines()}
    (shown,) = [block for block in code_blocks(README, "text") if "emulator on the CPU" in block]
    lines = {shape(line) for line in shown.splitlines() if line.strip() != "..."}
    assert len(lines) >= 8 and lines <= printed


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, to plant bugs in."""
    for folder in FOLDERS:
        skipped = shutil.ignore_patterns("_C.*.so", "__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=skipped)
    for file in FILES:
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_broken_build_fails_as_shown(tree: Path) -> None:
    """The worked example of support.md, its commands as they stand there."""
    clone, run, *_ = code_blocks(SUPPORT, "sh")
    sed = clone.partition("\n")[2]
    subprocess.run(["bash", "-eu", "-c", sed], cwd=tree, check=True)
    options = re.findall(r"run_kernels.py (.*) --device emulator", run)[0].split()
    ran = run_kernels(tree, *options)
    assert ran.returncode == 1
    failed, *_ = (block for block in code_blocks(SUPPORT, "text") if block.startswith("FAIL"))
    for line in failed.splitlines():
        beginning = shape(line.removesuffix("…"))
        assert any(shape(p).startswith(beginning) for p in ran.stdout.splitlines()), line


@pytest.mark.slow
def test_the_removed_wait_is_found_as_shown(tree: Path) -> None:
    kernel = tree / "csrc/include/flash/sm80/forward/forward.cuh"
    wait = "load_wait<kConfig, 0>();\n      __syncthreads();  // V is visible; every warp"
    text = kernel.read_text()
    assert text.count(wait) == 1
    kernel.write_text(text.replace(wait, wait.partition("\n")[2]))
    ran = run_kernels(tree, "128", "128", "--kernels",
                      "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_0_0_tiles")  # fmt: skip
    assert ran.returncode == 1
    (shown,) = [b for b in code_blocks(SUPPORT, "text") if b.startswith("PendingAsyncCopyError")]
    printed = re.sub(r"\s+", " ", ran.stdout)
    for piece in re.split(r"…|at cp_async|\(PTX", re.sub(r"\s+", " ", shown)):
        found = shape(piece.split(", inlined")[0]) if "inlined" in piece else shape(piece)
        assert found in shape(printed), (found, printed)
