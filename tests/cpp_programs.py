"""C++ programs of tests, compiled once, in this run and the next: they and the objects that they
share lie in the cache directory, under a digest of what they are made of."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.toolchain import Nvcc, find_nvcc
from tests.kept_files import kept

CSRC = Path(__file__).resolve().parents[1] / "csrc"
FLAGS = ("-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{CSRC / 'include'}")
SANITIZED = (*FLAGS, "-fsanitize=address,undefined")


def runtime_flags() -> tuple[str, ...]:
    """SANITIZED, with the runtime's headers and CUDA's. Skips the test where there are none."""
    nvcc = _nvcc()
    if nvcc is None:
        pytest.skip("no CUDA headers")
    return (*SANITIZED, f"-I{CSRC / 'runtime'}", "-isystem", str(nvcc.include_dir))


def runtime_sources(*names: str) -> list[Path]:
    return [CSRC / "runtime" / f"{name}.cpp" for name in names]


def lines_of(
    main: str,
    *arguments: Path,
    sources: Iterable[Path] = (),
    flags: Sequence[str] = FLAGS,
) -> list[str]:
    """What the program of the text `main` and of `sources` prints."""
    program = _program(main, list(sources), flags)
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


@functools.cache
def _nvcc() -> Nvcc | None:
    try:
        return find_nvcc()
    except BuildError:
        return None


@functools.cache
def _surroundings() -> str:
    """The digest of the compiler, and of all that a source may include: CUDA's headers by their
    version, of ours all that are plain C++."""
    version = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    nvcc = _nvcc()
    state = hashlib.sha256(version + (nvcc.version.encode() if nvcc else b""))
    for header in sorted(CSRC.rglob("*.h")):
        state.update(f"{header.relative_to(CSRC)}\0".encode() + header.read_bytes())
    return state.hexdigest()


def _object(source: Path, flags: Sequence[str]) -> Path:
    def build(into: Path) -> None:
        _compile([*flags, "-c", str(source), "-o", str(into)])

    return kept("programs", ".o", [_surroundings(), *flags, source.read_text()], build)


def _program(main: str, sources: list[Path], flags: Sequence[str]) -> Path:
    def build(into: Path) -> None:
        objects = [str(_object(source, flags)) for source in sources]
        _compile([*flags, "-x", "c++", "-", "-x", "none", *objects, "-o", str(into)], main)

    texts = [main, *(source.read_text() for source in sources)]
    return kept("programs", "", [_surroundings(), *flags, *texts], build)


def _compile(arguments: list[str], text: str = "") -> None:
    done = subprocess.run(
        ["g++", *arguments], input=text, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
