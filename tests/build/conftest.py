"""One real build that the tests of this folder share (one for each pytest-xdist worker)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.toolchain import find_nvcc

from .remembering import Toolchain, remembering_compilers

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "CHANGELOG.md", "CMakeLists.txt", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml",
    "setup.py",
)  # fmt: skip
HANGS = 1800.0  # seconds, after which a build is taken to hang on however busy a machine
FOLDERS = ("csrc", "flash_attention", "previous_kernels", "py")

# Builds two kernels of the set instead of all: two translation units.
BUILD_TWO = """
import dataclasses, os, sys
from pathlib import Path
from flash_helpers.build import driver
from flash_helpers.compilers.errors import BuildError
from flash_helpers.build.plan import make_plan
try:
    driver.CONFIGS_PER_UNIT = 1
    plan = make_plan()
    listed = os.environ.get("BUILD_PARTS")
    parts = driver.InParts(2, Path(listed)) if listed else None
    two = dataclasses.replace(plan, configs=plan.configs[:2])
    result = driver.build_plan(two, parts, [plan.root / "flash_attention"])
    print("directory:", result.directory)
except BuildError as error:
    sys.exit(f"error: {error}")
"""


@dataclass(frozen=True)
class Tree:
    """A copy of the source tree in which builds may be broken."""

    root: Path
    compilers: Toolchain

    def environ(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if k not in ("KERNELS", "MAX_JOBS")}
        own = {
            "PYTHONPATH": str(self.root / "py"),
            "TORCH_CUDA_ARCH_LIST": "8.0",
            "KERNELS": "prog",
        }
        return {**inherited, **own, **self.compilers.environ(), **(extra or {})}

    def start(self, extra: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", BUILD_TWO],
            cwd=self.root,
            env=self.environ(extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def build(self, extra: Mapping[str, str] | None = None) -> str:
        process = self.start(extra)
        output, _ = process.communicate(timeout=HANGS)
        assert process.returncode == 0, output
        return output

    def steps(self) -> list[str]:
        """Builds, and says what was compiled or linked, in this order."""
        return re.findall(r"(?:Building \w+ object|Linking CXX \S+ module) (\S+)", self.build())

    def rebuilt(self) -> set[str]:
        return set(self.steps())

    def n_steps(self) -> int:
        """Of a build from nothing."""
        return len(list(self.directory.glob("CMakeFiles/*.dir/**/*.o"))) + 1

    @property
    def directory(self) -> Path:
        (found,) = (self.root / "build").glob("cpython-*")
        return found

    @property
    def extension(self) -> Path:
        (found,) = (self.root / "flash_attention").glob("_C.*.so")
        return found

    def run_with_extension(self, code: str, extension: Path | None = None) -> str:
        """Runs Python code in which `_C` is the extension (by default that of the last build), in a
        process without torch."""
        load = (
            "import importlib.util as u, os, sys\n"
            "def libraries():\n"
            "    lines = open('/proc/self/maps').read().splitlines()\n"
            "    paths = {line.split(maxsplit=5)[5] for line in lines if '.so' in line}\n"
            "    return {path.rsplit('/', 1)[-1] for path in paths}\n"
            "modules, before = set(sys.modules), libraries()\n"
            f"path = {str(extension or self.extension)!r}\n"
            "spec = u.spec_from_file_location('flash_attention._C', path)\n"
            "_C = u.module_from_spec(spec); spec.loader.exec_module(_C)\n"
            "brought, mapped = set(sys.modules) - modules, libraries() - before\n"
            "threads = len(os.listdir('/proc/self/task'))\n"
        )
        command = [sys.executable, "-c", load + code]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environ())
        assert done.returncode == 0, done.stderr
        return done.stdout


def copy_sources(target: Path, compilers: Toolchain) -> Tree:
    target.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    for name in FILES:
        shutil.copy2(ROOT / name, target / name)
    return Tree(target, compilers)


@pytest.fixture(scope="session")
def needs_compilers() -> None:
    try:
        find_nvcc()
    except BuildError as error:
        pytest.skip(f"no CUDA compiler: {error}")


@pytest.fixture(scope="session")
def compilers(needs_compilers: None) -> Toolchain:
    """They compile nothing twice, in this run and the next."""
    return remembering_compilers()


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory, compilers: Toolchain) -> Tree:
    """Built once, in a folder with a name that few tools of a build read rightly."""
    folder = tmp_path_factory.mktemp("real build") / "ünder o'test, a & #b"
    tree = copy_sources(folder, compilers)
    tree.build()
    return tree
