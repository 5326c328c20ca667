"""Finds the CUDA compiler and the host compiler, or says how to get them.

python -m flash_helpers.build.toolchain             print what a build would use
python -m flash_helpers.build.toolchain --install   take nvcc from PyPI where none is found
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .errors import BuildError

# Older ones do not know -std=c++20 or lack a compiler that does.
MINIMUM_NVCC = (12, 0)
MINIMUM_GCC = 11

_USUAL_FOLDER = Path("/usr/local/cuda")


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
        return [f"-L{self.library_dir}"]

    @cached_property
    def supported_targets(self) -> tuple[str, ...]:
        """The numbers of `nvcc --list-gpu-code`: ("75", "80", …)."""
        text = _output([str(self.path), "--list-gpu-code"])
        found = re.findall(r"^sm_(\d+)[a-z]?$", text, re.MULTILINE)
        return tuple(sorted(dict.fromkeys(found), key=int))

    def _folders(self, name: str) -> list[Path]:
        return [*sorted(self.root.glob(f"targets/*-linux/{name}")), self.root / name]


@dataclass(frozen=True)
class HostCompiler:
    path: Path
    version: str  # first line of --version


def find_nvcc(environ: Mapping[str, str] | None = None) -> Nvcc:
    """The CUDA compiler: CUDACXX, else CUDA_HOME or CUDA_PATH, PATH, /usr/local/cuda, the PyPI
    wheels in site-packages, the PyPI wheels that `--install` fetched."""
    environ = os.environ if environ is None else environ
    explicit = environ.get("CUDACXX")
    if explicit:
        found = shutil.which(explicit, path=environ.get("PATH"))
        if found is None:
            raise BuildError(f"CUDACXX={explicit!r} is not a program: unset it or correct it")
        return probe(Path(found), "CUDACXX", environ)
    problems = []
    for path, source in _candidates(environ):
        try:
            return probe(path, source, environ)
        except BuildError as error:
            problems.append(str(error))
    raise BuildError(
        "no usable CUDA compiler found: looked at CUDACXX, CUDA_HOME, CUDA_PATH, PATH, "
        "/usr/local/cuda and the PyPI wheels. Install CUDA 12 or newer, or take it from PyPI "
        "(101 MB): python -m flash_helpers.build.toolchain --install"
        + "".join(f"\n  {problem}" for problem in problems)
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield Path(environ[variable]) / "bin" / "nvcc", variable
    on_path = shutil.which("nvcc", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path), "PATH"
    yield _USUAL_FOLDER / "bin" / "nvcc", str(_USUAL_FOLDER)
    from .nvcc_wheels import wheel_folders  # here: that module imports this one

    for folder, source in wheel_folders(environ):
        yield folder / "bin" / "nvcc", source


def probe(path: Path, source: str, environ: Mapping[str, str] | None = None) -> Nvcc:
    """Asks an nvcc who it is. A wrapper script answers for the program behind it."""
    environ = dict(os.environ if environ is None else environ)
    if not os.access(path, os.X_OK):
        raise BuildError(f"{source}: {path} does not exist")
    text = _output([str(path), "--version"], environ)
    match = re.search(r"release \d+\.\d+, V(\d+\.\d+\.\d+)", text)
    if match is None:
        raise BuildError(f"{source}: {path} --version does not answer like nvcc")
    version = match[1]
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMUM_NVCC:
        needed = ".".join(map(str, MINIMUM_NVCC))
        raise BuildError(f"{source}: {path} is CUDA {version}; {needed} or newer is needed (C++20)")
    dry_run = _output([str(path), "--dryrun", "-cubin", "-x", "cu", os.devnull], environ)
    here = re.search(r"^#\$ _HERE_=(.+)$", dry_run, re.MULTILINE)
    program = Path(here[1]) / "nvcc" if here else path.resolve()
    if not program.exists():
        program = path.resolve()
    return Nvcc(program, version, program.parent.parent, source, environ)


def find_host_compiler(environ: Mapping[str, str] | None = None) -> HostCompiler:
    """The C++ compiler: CXX, else g++, c++ or clang++."""
    environ = os.environ if environ is None else environ
    names = [environ["CXX"]] if environ.get("CXX") else ["g++", "c++", "clang++"]
    for name in names:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return _check_host_compiler(Path(found))
    if environ.get("CXX"):
        raise BuildError(
            f"CXX={environ['CXX']!r} is not a program: give one C++ compiler, no options"
        )
    raise BuildError("no C++ compiler found: on Debian and Ubuntu, apt-get install g++")


def _check_host_compiler(path: Path) -> HostCompiler:
    version = _output([str(path), "--version"]).splitlines()[0]
    match = re.match(r"(?:g\+\+|c\+\+|gcc)\S* .*?(\d+)\.\d+\.\d+", version)
    if match and int(match[1]) < MINIMUM_GCC:
        raise BuildError(f"{path} is too old for C++20: {version}; GCC {MINIMUM_GCC} is needed")
    return HostCompiler(path, version)


def find_tool(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """cmake or ninja. The interpreter's own scripts come first: a build environment's copy on
    PATH is gone after the build, and CMake would remember its path."""
    environ = os.environ if environ is None else environ
    folders = [sysconfig.get_path("scripts"), environ.get("PATH", os.defpath)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise BuildError(f"{name} is not installed: {sys.executable} -m pip install {name}")
    return Path(found)


def _first_with(folders: list[Path], file: str, nvcc: Nvcc) -> Path:
    for folder in folders:
        if (folder / file).is_file():
            return folder.resolve()
    raise BuildError(
        f"{nvcc.path} comes without {file} (looked in {', '.join(map(str, folders))}): install the "
        "CUDA runtime's development files (PyPI: nvidia-cuda-runtime)"
    )


def _output(command: list[str], environ: Mapping[str, str] | None = None) -> str:
    """Standard output and error together: nvcc's dry run speaks on the latter."""
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=60, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} cannot be run: {error}") from error
    return done.stdout + done.stderr


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


if __name__ == "__main__":
    sys.exit(main())
