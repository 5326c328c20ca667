"""Finds the CUDA compiler and the host compiler, or says how to get them.

python -m flash_helpers.build.toolchain             print what a build would use
python -m flash_helpers.build.toolchain --install   take nvcc from PyPI where none is found
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .errors import BuildError
from .programs import ask, find_program, variable
from .usable_paths import TOOL_REFUSED, check_path, nvcc_folder

# Older ones do not know -std=c++20 or lack a compiler that does.
MINIMUM_NVCC = (12, 0)
MINIMUM_GCC = 11
_CXX_20 = 202002  # __cplusplus

USUAL_FOLDER = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler that answered."""

    path: Path  # the program itself, wrapper scripts resolved
    version: str  # "13.0.88"
    root: Path  # holds bin/, include/ and the libraries
    source: str  # where it was found: "CUDACXX", "PATH", …
    env: dict[str, str] = field(default_factory=dict, compare=False)  # for subprocess.run(env=…)

    @property
    def release(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @cached_property
    def include_dir(self) -> Path:
        return _first_with(self._folders("include"), "cuda_runtime_api.h", self)

    @cached_property
    def library_dir(self) -> Path:
        return _first_with([*self._folders("lib"), self.root / "lib64"], "libcudart_static.a", self)

    @property
    def link_flags(self) -> list[str]:
        """Named always: the wheel's nvcc.profile looks in lib64/, but its libraries lie in lib/."""
        return [nvcc_folder("-L", self.library_dir)]

    @cached_property
    def supported_targets(self) -> tuple[str, ...]:
        """The numbers of `nvcc --list-gpu-code`: ("75", "80", …)."""
        text = ask([str(self.path), "--list-gpu-code"], self.env or None, must_succeed=False)
        found = re.findall(r"^sm_([0-9]{2,3})[a-z]?$", text, re.MULTILINE)
        if not found:
            raise BuildError(f"{self.path} --list-gpu-code names no architecture")
        return tuple(sorted(dict.fromkeys(found), key=int))

    def _folders(self, name: str) -> list[Path]:
        return [*sorted(self.root.glob(f"targets/*-linux/{name}")), self.root / name]


@dataclass(frozen=True)
class HostCompiler:
    path: Path
    version: str  # first line of --version


def find_nvcc(environ: Mapping[str, str] = os.environ) -> Nvcc:
    """The CUDA compiler: CUDACXX, else CUDA_HOME or CUDA_PATH, PATH, /usr/local/cuda, the PyPI
    wheels in site-packages, the PyPI wheels that `--install` fetched."""
    explicit = variable(environ, "CUDACXX")
    if explicit:
        found = find_program(explicit, environ.get("PATH"))
        if found is None:
            raise BuildError(f"CUDACXX={explicit!r} is not a program: unset it or correct it")
        return probe(found, "CUDACXX", environ)
    problems = []
    for path, source in _candidates(environ):
        try:
            return probe(path, source, environ)
        except BuildError as error:
            problems.append(str(error))
    raise BuildError(
        "no usable CUDA compiler found: looked at CUDACXX, CUDA_HOME, CUDA_PATH, PATH, "
        "/usr/local/cuda and the PyPI wheels. Install CUDA 12 or newer, or take it from PyPI "
        "(105 MB): python -m flash_helpers.build.toolchain --install"
        + "".join(f"\n  {problem}" for problem in problems)
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if home := variable(environ, name):
            yield Path(home).absolute() / "bin" / "nvcc", name
    on_path = find_program("nvcc", environ.get("PATH"))
    if on_path:
        yield on_path, "PATH"
    yield USUAL_FOLDER / "bin" / "nvcc", str(USUAL_FOLDER)
    from .nvcc_wheels import wheel_folders  # here: that module imports this one

    for folder, source in wheel_folders(environ):
        yield folder / "bin" / "nvcc", source


def probe(path: Path, source: str, environ: Mapping[str, str] = os.environ) -> Nvcc:
    """Asks an nvcc for its version. A wrapper script answers for the program that it runs."""
    environ = dict(environ)
    check_path(f"nvcc ({source})", path, TOOL_REFUSED)
    if not os.access(path, os.X_OK):
        raise BuildError(f"{source}: {path} does not exist")
    text = ask([str(path), "--version"], environ)
    match = re.search(r"release [0-9.]+, V([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6})\b", text)
    if match is None:
        raise BuildError(f"{source}: {path} --version does not answer like nvcc")
    version = match[1]
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMUM_NVCC:
        needed = ".".join(map(str, MINIMUM_NVCC))
        raise BuildError(f"{source}: {path} is CUDA {version}; {needed} or newer is needed (C++20)")
    command = [str(path), "--dryrun", "-cubin", "-x", "cu", os.devnull]
    dry_run = ask(command, environ, must_succeed=False)
    here = re.search(r"^#\$ _HERE_=(.+)$", dry_run, re.MULTILINE)
    program = Path(here[1]) / "nvcc" if here else path.resolve()
    if not os.path.exists(program):  # noqa: PTH110  Path's raises where the name is too long
        program = path.resolve()
    check_path(f"nvcc ({source})", program, TOOL_REFUSED)
    return Nvcc(program, version, program.parent.parent, source, environ)


def find_host_compiler(environ: Mapping[str, str] = os.environ) -> HostCompiler:
    """The C++ compiler: CXX, else g++, c++ or clang++."""
    explicit = variable(environ, "CXX")
    for name in [explicit] if explicit else ["g++", "c++", "clang++"]:
        found = find_program(name, environ.get("PATH"))
        if found:
            return _check_host_compiler(found, environ)
    if explicit:
        raise BuildError(f"CXX={explicit!r} is not a program: give one C++ compiler, no options")
    raise BuildError("no C++ compiler found: on Debian and Ubuntu, apt-get install g++")


def _check_host_compiler(path: Path, environ: Mapping[str, str]) -> HostCompiler:
    check_path("the C++ compiler", path, TOOL_REFUSED)
    lines = ask([str(path), "--version"], environ).splitlines()
    version = next((line.strip() for line in lines if line.strip()), "")
    match = re.match(r"(?:g\+\+|c\+\+|gcc)\S* .*?\b([0-9]{1,4})\.[0-9]+\.[0-9]+", version)
    if match and int(match[1]) < MINIMUM_GCC:
        raise BuildError(f"{path} is too old for C++20: {version}; GCC {MINIMUM_GCC} is needed")
    defined = ask([str(path), "-std=c++20", "-x", "c++", "-E", "-dM", os.devnull], environ)
    standard = re.search(r"^#define __cplusplus ([0-9]{6})L", defined, re.MULTILINE)
    if not version or standard is None:
        raise BuildError(f"{path} does not answer like a C++ compiler: correct or unset CXX")
    if int(standard[1]) < _CXX_20:
        raise BuildError(f"{path} is too old for C++20: {version}")
    return HostCompiler(path, version)


def _first_with(folders: list[Path], file: str, nvcc: Nvcc) -> Path:
    for folder in folders:
        if (folder / file).is_file():
            check_path(f"the folder of {file}", folder.resolve(), TOOL_REFUSED)
            return folder.resolve()
    raise BuildError(
        f"{nvcc.path} comes without {file} (looked in {', '.join(map(str, folders))}): install the "
        "CUDA runtime's development files (PyPI: nvidia-cuda-runtime)"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m flash_helpers.build.toolchain")
    parser.description = "Print the compilers that a build would use."
    parser.add_argument(
        "--install", action="store_true", help="take nvcc from PyPI (pinned) where none is found"
    )
    options = parser.parse_args(arguments)
    try:
        if options.install:
            from .nvcc_wheels import find_or_install_nvcc

            nvcc = find_or_install_nvcc()
        else:
            nvcc = find_nvcc()
        host = find_host_compiler()
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"nvcc {nvcc.version} at {nvcc.path} (from {nvcc.source})\nhost {host.version}, {host.path}"
    )
    return 0
