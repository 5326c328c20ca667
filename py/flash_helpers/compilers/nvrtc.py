"""NVRTC: NVIDIA's compiler as a library, from CUDA C++ to machine code. It needs neither nvcc nor a
host compiler, and PyTorch's CUDA builds bring it.

It knows no standard headers. Of those that kernels include (<cstdint> alone) it is given the part
that they use.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .errors import BuildError
from .programs import variable
from .toolchain import USUAL_FOLDER

# Older ones do not know -std=c++20.
MINIMUM_NVRTC = (12, 0)
PACKAGE = "nvidia-cuda-nvrtc"

# Under the names by which sources include them. The types are those of 64-bit Linux, as nvcc's.
HEADERS = {
    "cstdint": """#pragma once
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
"""
}

_PROGRAM = ctypes.c_void_p
_SIZE = ctypes.POINTER(ctypes.c_size_t)
_STRINGS = ctypes.POINTER(ctypes.c_char_p)
_FUNCTIONS = {
    "nvrtcVersion": (ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)),
    "nvrtcCreateProgram": (
        ctypes.POINTER(_PROGRAM), ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, _STRINGS, _STRINGS
    ),
    "nvrtcCompileProgram": (_PROGRAM, ctypes.c_int, _STRINGS),
    "nvrtcGetProgramLogSize": (_PROGRAM, _SIZE),
    "nvrtcGetProgramLog": (_PROGRAM, ctypes.c_char_p),
    "nvrtcGetCUBINSize": (_PROGRAM, _SIZE),
    "nvrtcGetCUBIN": (_PROGRAM, ctypes.c_char_p),
    "nvrtcDestroyProgram": (ctypes.POINTER(_PROGRAM),),
}  # fmt: skip


@dataclass(frozen=True)
class Nvrtc:
    """A library that answered."""

    path: Path
    version: str  # "13.0"
    source: str  # where it was found
    library: ctypes.CDLL = field(repr=False, compare=False)

    @property
    def identity(self) -> str:
        """What else could change the machine code: releases of one version differ in size."""
        return f"{self.version} {self.path.stat().st_size} {sorted(HEADERS.items())}"

    def cubin(self, source: str, name: str, options: Sequence[str]) -> bytes:
        """The machine code of a translation unit for the real architecture (-arch=sm_…) that
        `options` name. Raises RuntimeError with the compiler's messages, which call the unit
        `name`. Other threads run meanwhile."""
        program = _PROGRAM()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(),
            len(HEADERS), _strings(HEADERS.values()), _strings(HEADERS),
        )  # fmt: skip
        try:
            status = self.library.nvrtcCompileProgram(program, len(options), _strings(options))
            if status != 0:
                messages = self._read("nvrtcGetProgramLog", program).rstrip(b"\0").decode()
                raise RuntimeError(f"NVRTC {self.version} failed ({status}) on {name}:\n{messages}")
            return self._read("nvrtcGetCUBIN", program)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, function: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{function}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(function, program, buffer)
        return buffer.raw

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} of NVRTC {self.version} failed ({status})")


def find_nvrtc(environ: Mapping[str, str] = os.environ) -> Nvrtc:
    """NVRTC of the installed packages, PyTorch's own among them, since the driver runs what those
    make; else of CUDA_HOME, CUDA_PATH, /usr/local/cuda. Raises BuildError that says where it was
    looked for."""
    problems = []
    looked = []
    for folder, source in _folders(environ):
        looked.append(str(folder))
        for path in sorted(folder.glob("libnvrtc.so.*"), key=_release, reverse=True):
            try:
                return _load(path.resolve(), source)
            except BuildError as error:
                problems.append(str(error))
    raise BuildError(
        f"NVRTC (libnvrtc.so) was not found in {', '.join(dict.fromkeys(looked))}: PyTorch's CUDA "
        f"builds bring it, as does pip install {PACKAGE}"
        + "".join(f"\n  {problem}" for problem in problems)
    )


def _folders(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    packages = importlib.util.find_spec("nvidia")
    for place in (packages.submodule_search_locations or ()) if packages else ():
        for folder in sorted(Path(place).glob("cu[0-9]*"), reverse=True):
            yield folder / "lib", "installed packages"
        yield Path(place) / "cuda_nvrtc" / "lib", "installed packages"  # of CUDA 12
    homes = [(variable(environ, name), name) for name in ("CUDA_HOME", "CUDA_PATH")]
    for home, source in [*homes, (str(USUAL_FOLDER), str(USUAL_FOLDER))]:
        if home:
            yield Path(home).absolute() / "lib64", source
            yield Path(home).absolute() / "lib", source


@cache
def _load(path: Path, source: str) -> Nvrtc:
    """Its second library, which it looks for by name alone, is loaded before it."""
    try:
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(path))
        for name, types in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
    except (OSError, AttributeError) as error:
        raise BuildError(f"{path} cannot be loaded: {error}") from error
    major, minor = ctypes.c_int(), ctypes.c_int()
    status = library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if status != 0 or (major.value, minor.value) < MINIMUM_NVRTC:
        needed = ".".join(map(str, MINIMUM_NVRTC))
        raise BuildError(f"{path} is NVRTC {major.value}.{minor.value}; {needed} is needed (C++20)")
    return Nvrtc(path, f"{major.value}.{minor.value}", source, library)


def _release(path: Path) -> tuple[int, ...]:
    """Of libnvrtc.so.13.0.48: (13, 0, 48)."""
    numbers = path.name.removeprefix("libnvrtc.so.").split(".")
    return tuple(int(number) for number in numbers if number.isdecimal())


def _strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)
