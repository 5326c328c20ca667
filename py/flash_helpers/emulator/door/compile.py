"""C++ of a translated kernel to a shared library in the cache, and the runtime it needs.

The runtime (csrc/emulator/**/*.cpp) is compiled once per compiler, CPU and source state; a kernel
contains only its own body and links against it.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...base.cache import build_once, cache_dir, is_intact, publish_built
from ...base.paths import csrc_dir
from ...compilers.errors import BuildError
from ...compilers.programs import ask, find_program
from ..counters.counting import CountingCalls
from ..errors import EmulatorBuildError
from ..sm90.translation import MatmulRegisters
from ..translator.passes import PassOf
from ..translator.ptx_parser import PtxFile
from ..translator.translate import translate
from .abi import load_runtime

_COMMON_FLAGS = (
    "-std=c++20",
    "-march=native",
    "-fPIC",
    "-shared",
    "-fno-exceptions",
    "-fno-rtti",
    "-ffp-contract=off",  # PTX says itself what is fused
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fwrapv",  # integers do in PTX
)
_RUNTIME_FLAGS = (*_COMMON_FLAGS, "-O3", "-pthread", "-fno-semantic-interposition")
_KERNEL_FLAGS = (*_COMMON_FLAGS, "-Og", "-fvisibility=hidden", "-fno-trapping-math")
# libc and libstdc++ come with the runtime; to read them takes the linker longer than all else.
_KERNEL_LIBRARIES = ("-nodefaultlibs", "-lm", "-lgcc")


@dataclass(frozen=True)
class Toolchain:
    """The host compiler and everything else that its output depends on."""

    command: tuple[str, ...]
    version: str
    cpu: str

    @property
    def red_zone_flags(self) -> tuple[str, ...]:
        """The context switch pushes below the stack pointer of its caller."""
        return ("-mno-red-zone",) if platform.machine() in ("x86_64", "AMD64") else ()

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """GCC's registers for a whole kernel at once: an eighth of the time less."""
        of_gcc = "Free Software Foundation" in self.version
        return (*_KERNEL_FLAGS, "-fira-region=one") if of_gcc else _KERNEL_FLAGS


@functools.cache
def find_toolchain(cxx: str | None) -> Toolchain:
    """The compiler that `cxx` (the value of $CXX) names, else the first on PATH."""
    explicit = cxx if cxx and cxx.strip() else None
    candidates = [explicit] if explicit else ["g++", "c++", "clang++"]
    problems = []
    for candidate in candidates:
        try:
            words = shlex.split(candidate)
            if found := find_program(words[0], None):
                command = (str(found), *words[1:])
                version = ask([*command, "--version"])
                if version.strip():
                    return Toolchain(command, version, _cpu_fingerprint())
                problems.append(f"{found} --version prints nothing")
        except (BuildError, ValueError) as error:  # ValueError: of quotes that nobody closed
            problems.append(str(error))
    names = ", ".join(candidates)
    wanted = f"$CXX is {cxx!r}, which cannot be run" if explicit else f"none of {names} can be run"
    raise EmulatorBuildError(
        f"the emulator needs a C++20 compiler: {'; '.join([wanted, *problems])}. Install g++ "
        "(Debian, Ubuntu: apt-get install g++) or set CXX"
    )


def _cpu_fingerprint() -> str:
    """What -march=native depends on: model and feature flags of the first processor."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    keys = ("model", "model name", "cpu family", "flags", "Features", "CPU part")
    lines = text.split("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if line.split("\t")[0].split(":")[0].strip() in keys)


def _digest(*parts: str | bytes) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:32]


@functools.cache
def _translator_fingerprint() -> str:
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    return _digest(*(source.read_bytes() for source in sources))


class Runtime:
    """The compiled and loaded runtime of one toolchain."""

    def __init__(self, toolchain: Toolchain, extra_flags: tuple[str, ...] = ()) -> None:
        self.toolchain = toolchain
        files = sorted(p for p in (csrc_dir() / "emulator").rglob("*") if p.is_file())
        self._sources = [path for path in files if path.suffix == ".cpp"]
        self.include_flags = [f"-I{folder}" for folder in sorted({p.parent for p in files})]
        flags = (*_RUNTIME_FLAGS, *toolchain.red_zone_flags, *extra_flags)
        self.key = _digest(
            *toolchain.command,
            toolchain.version,
            toolchain.cpu,
            *flags,
            *toolchain.kernel_flags,
            *(path.read_bytes() for path in files),
        )
        self._flags = flags
        self._extra_flags = extra_flags
        self.library_path = cache_dir("emulator") / f"runtime-{self.key}.so"
        self.library = load_or_build(self.library_path, self._build, load_runtime)

    def _build(self, output: Path) -> None:
        """Objects in parallel, one a folder: parsing the headers anew for each file would cost more
        than all else. Then one link with a soname that kernels name as needed."""

        def compile_folder(folder: Path) -> str:
            unit, target = (output.parent / f"unit-{folder.name}{end}" for end in (".cpp", ".o"))
            names = [path.name for path in self._sources if path.parent == folder]
            unit.write_text("".join(f'#include "{name}"\n' for name in names))
            flags = [flag for flag in self._flags if flag != "-shared"]
            flags += self.include_flags
            run_compiler(self.toolchain, [*flags, "-c", str(unit), "-o", str(target)])
            return str(target)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_folder, sorted({p.parent for p in self._sources})))
        soname = f"-Wl,-soname,{self.library_path.name}"
        run_compiler(self.toolchain, [*self._flags, *objects, soname, "-o", str(output)])

    def compile_kernel(self, ptx: str, entry: str, counting: bool = False) -> ctypes.CDLL:
        """The loaded library of one entry, from the cache if possible."""
        key = _digest(ptx, entry, self.key, _translator_fingerprint(), str(counting))

        def build(output: Path) -> None:
            self.compile_source(kernel_source(ptx, entry, counting), output)

        path = cache_dir("emulator") / f"kernel-{key}.so"
        return load_or_build(path, build, ctypes.CDLL)

    def compile_source(self, text: str, output: Path) -> None:
        """The library of a translated kernel."""
        source = output.with_suffix(".cpp")
        source.write_text(text)
        flags = [*self.toolchain.kernel_flags, *self._extra_flags, *self.include_flags]
        link = [str(self.library_path), *_KERNEL_LIBRARIES, "-Wl,-rpath,$ORIGIN", "-Wl,-O1"]
        run_compiler(self.toolchain, [*flags, str(source), *link, "-o", str(output)])


def kernel_source(ptx: str, entry: str, counting: bool = False) -> str:
    """One entry in C++."""
    passes: list[PassOf] = [MatmulRegisters, *([CountingCalls] if counting else [])]
    return translate(PtxFile(ptx), entry, passes)


def load_or_build(
    path: Path, build: Callable[[Path], None], load: Callable[[str], ctypes.CDLL]
) -> ctypes.CDLL:
    """Loads a cached library; builds it first if it is absent, damaged or cannot be loaded."""

    def cached() -> ctypes.CDLL | None:
        try:
            return load(str(path)) if is_intact(path) else None
        except OSError:  # for example built against a C library that is gone
            return None

    def built() -> ctypes.CDLL:
        publish_built(build, path)
        return load(str(path))

    return build_once(path, cached, built)


def run_compiler(toolchain: Toolchain, arguments: list[str]) -> None:
    command = [*toolchain.command, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace")
    errors = "\n".join(result.stderr.splitlines()[:30])
    if result.returncode != 0:
        raise EmulatorBuildError(f"the C++ compiler failed: {shlex.join(command)}\n{errors}")
    output = Path(arguments[arguments.index("-o") + 1])
    if not output.is_file():
        raise EmulatorBuildError(f"the C++ compiler wrote nothing: {shlex.join(command)}\n{errors}")


_runtimes: dict[tuple[Toolchain, str, tuple[str, ...]], Runtime] = {}
_runtimes_lock = threading.Lock()


def runtime(extra_flags: tuple[str, ...] = ()) -> Runtime:
    """The runtime for the current $CXX and cache directory, loaded once per process."""
    toolchain = find_toolchain(os.environ.get("CXX"))
    key = (toolchain, str(cache_dir("emulator")), extra_flags)
    with _runtimes_lock:
        if key not in _runtimes:
            _runtimes[key] = Runtime(toolchain, extra_flags)
        return _runtimes[key]
