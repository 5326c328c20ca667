"""Runs the wheel without kernels with several releases of PyTorch, each in an environment of its
own, outside of the tree.

    python -m tests.build.torch_releases [--python PYTHON] [RELEASE ...] [-- PYTEST ARGUMENTS]
    make test-torch [TORCHES="2.4.1 2.15.0"] [PYTEST_ARGS=...]

Without a RELEASE: those that docs/support.md names. The wheel is built once, from a source archive.
Where it was installed a smoke test runs, and then the tests that meet PyTorch, slow ones left out,
with the kernels compiled by the NVRTC that this PyTorch brings. PYTHON (by default the one that
runs this) is what environments are made of. PyPI's PyTorch downloads 2.5 to 3.5 GB with its CUDA
libraries, and an environment takes 5 GB below build/, until its release is done. Exit codes: 0 all
passed, 1 a test failed, 2 usage, 3 a release could not be installed, 4 none could, 130 interrupted.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.releases import (
    FAILED,
    MISSING,
    PASSED,
    ROOT,
    Execute,
    ended,
    error,
    execute,
    split,
    summary,
)  # fmt: skip

from .wheel_smoke import SMOKE

TESTED = ("2.4.1", "2.6.0", "2.10.0", "2.15.0")
NEEDED = ("numpy", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "expecttest")
TESTS = (
    "tests/backward/test_arguments.py",
    "tests/backward/test_autograd.py",
    "tests/backward/test_recorder.py",
    "tests/build/test_nvrtc.py::test_the_kernels_of_each_family",
    "tests/forward/test_arguments.py",
    "tests/forward/test_compat.py",
    "tests/forward/test_drop_in.py",
    "tests/forward/test_drop_in_detour.py",
    "tests/forward/test_examples.py",
    "tests/forward/test_flash_attn_func.py",
    "tests/forward/test_library.py",
    "tests/forward/test_plain_calls.py",
    "tests/forward/test_recorded_calls.py",
    "tests/serving/test_arguments.py",
    "tests/serving/test_dense.py",
    "tests/serving/test_short_way.py",
    "tests/torch_op",
)
# What tests read beside themselves. Where these stand alone, packages are those that are installed.
BESIDE = ("docs", "examples", "tests", "pyproject.toml", "README.md", "CHANGELOG.md")


def main(arguments: Sequence[str], run: Execute = execute, folder: Path = ROOT / "build") -> int:
    """The exit code. Environments are made in `folder`, and removed."""
    options = list(arguments)
    python = sys.executable
    if options[:1] == ["--python"]:
        python, options = (*options[1:2], "")[0], options[2:]
    releases, pytest_arguments = split(options, TESTED)
    if wrong := [x for x in releases if not re.fullmatch(r"\d+\.\d+\.\d+", x)]:
        error(f"{wrong[0]} is no release of PyTorch, such as {TESTED[-1]}")
        return 2
    if shutil.which(python) is None:
        error(f"--python {python} is not a program")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix="torch-releases.") as name:
        outside, wheels = Path(name) / "outside", Path(name) / "wheels"
        _copy(outside)
        for release in releases:
            print(f"== torch {release}", flush=True)
            environment = Path(name) / release
            result = _test(release, environment, outside, wheels, python, pytest_arguments, run)
            results[release] = result
            shutil.rmtree(environment, ignore_errors=True)
    return summary("torch", results)


def _copy(outside: Path) -> None:
    outside.mkdir()
    for name in BESIDE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, outside / name, ignore=shutil.ignore_patterns("*.pyc"))
        else:
            shutil.copy(ROOT / name, outside)


def _test(
    release: str, environment: Path, outside: Path, wheels: Path, python: str,
    pytest_arguments: Sequence[str], run: Execute,
) -> str:  # fmt: skip
    without = ("KERNELS", "PYTHONPATH")
    environ = {name: value for name, value in os.environ.items() if name not in without}
    inside = str(environment / "bin" / "python")
    pip = [inside, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = [*pip, "install", "--no-cache-dir"]
    if run([python, "-m", "venv", str(environment)], environ) or run(
        [*install, f"torch=={release}", *NEEDED], environ
    ):
        return MISSING
    if not _has_wheel(wheels, pip, environ, run):
        return FAILED
    paths = [str(path) for path in wheels.glob("*.whl")]
    pytest = [inside, "-m", "pytest", "-q", "-n0", "-m", "not slow"]
    commands = (
        [*install, *paths],
        [inside, "-W", "ignore", "-c", SMOKE],
        [inside, "-m", "flash_attention", "doctor"],
        [*pytest, *TESTS, *pytest_arguments],
    )
    return FAILED if any(run(command, environ, outside) for command in commands) else PASSED


def _has_wheel(
    wheels: Path, pip: Sequence[str], environ: Mapping[str, str], run: Execute
) -> bool:  # fmt: skip
    """Built by the first environment's pip, in isolation, as pip does with an archive."""
    if wheels.is_dir():
        return True
    wheels.mkdir()
    code = f"import setuptools.build_meta as b; print(b.build_sdist({str(wheels)!r}))"
    if run([sys.executable, "-c", code], environ):
        return False
    archive = str(next(wheels.glob("*.tar.gz"), "none"))
    return not run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), archive], environ)


if __name__ == "__main__":
    sys.exit(ended(main))
