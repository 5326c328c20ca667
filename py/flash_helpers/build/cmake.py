"""Runs CMake and ninja."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ..base.atomic_file import write_atomically
from ..compilers.errors import BuildError
from ..kernels.registry import families
from .plan import Plan
from .sealed import remove
from .staging import content_hash

# Three hashes, a line each: of the command, of the files that CMake read, of those that it wrote.
_CONFIGURED_MARK = "configured"
# What CMake writes and ninja, CMake's next run, or we need. An incremental build asks nothing else.
_NEEDED = ("CMakeCache.txt", "build.ninja", "CMakeFiles/rules.ninja", "link_flags.txt")
_WRITTEN = (*_NEEDED, "cmake_install.cmake", "compile_commands.json")
_COMPILERS = "CMakeFiles/[0-9]*"  # a folder of what CMake found out about them
_SHOWN_LINES = 30
_LAUNCHER = Path(__file__).resolve().parent / "record_compile.sh"
_PR_SET_PDEATHSIG = 1


def configure(plan: Plan, lock: int) -> None:
    """Runs CMake unless it was given the same before: 0.3 s saved on every build. It starts anew
    where its files are not as it left them (it was killed, or they were damaged), or where it was
    asked for something else: it would go by what it remembers, such as another place of the tree.
    """
    directory = plan.directory
    command = _configure_command(plan)
    asked = content_hash({"command": "\0".join(command), "version": plan.cmake.version})
    read = content_hash(
        {
            "CMakeLists.txt": (plan.root / "CMakeLists.txt").read_text(),
            "sources.cmake": (directory / "sources.cmake").read_text(),
        }
    )
    mark = directory / _CONFIGURED_MARK
    before = _read(mark).split("\n") if mark.is_file() else [""]
    if before == [asked, read, _hash_of_written(directory)]:
        return
    remove(mark)
    if [before[0], before[-1]] != [asked, _hash_of_written(directory)]:
        # Objects and ninja's logs stay.
        for path in [*(directory / name for name in _WRITTEN), *directory.glob(_COMPILERS)]:
            remove(path)
    log = directory / "configure.log"
    with log.open("w") as output:
        done = _run(command, plan, lock, output)
    if done.returncode != 0:
        raise BuildError(f"CMake failed, see {log}:\n{_what_failed(_read(log))}")
    missing = [name for name in _NEEDED if not (directory / name).is_file()]
    if missing:
        raise BuildError(f"{plan.cmake.path} ended well, but wrote no {' and no '.join(missing)}")
    lines = [asked, read, _hash_of_written(directory)]
    write_atomically(mark, "\n".join(lines).encode())


def _what_failed(log: str) -> str:
    """From the first error on, not too many lines."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if "CMake Error" in line]
    shown = lines[errors[0] if errors else 0 :]
    more = len(shown) - _SHOWN_LINES
    return "\n".join([*shown[:_SHOWN_LINES], *([f"… and {more} more lines"] if more > 0 else [])])


def _read(path: Path) -> str:
    return path.read_text(errors="replace")


def _hash_of_written(directory: Path) -> str:
    found = [directory / name for name in _WRITTEN]
    found += sorted(directory.glob(f"{_COMPILERS}/*.cmake"))
    texts = {str(path): path.read_bytes().decode("latin-1") for path in found if path.is_file()}
    return content_hash(texts)


def _configure_command(plan: Plan) -> list[str]:
    values = {
        "CMAKE_BUILD_TYPE": "None",  # all flags stand in CMakeLists.txt
        "CMAKE_SUPPRESS_REGENERATION": "ON",  # by ninja: what has changed is decided here
        # Always named: CMake would remember the ninja of a temporary build environment.
        "CMAKE_MAKE_PROGRAM": plan.ninja.path,
        "CMAKE_CXX_COMPILER": plan.host.path,
        "CMAKE_CUDA_COMPILER": plan.nvcc.path,
        "CMAKE_CUDA_HOST_COMPILER": plan.host.path,
        # They have answered (plan.py). CMake's trials of them take two seconds, and what those find
        # nobody asks for.
        **{f"CMAKE_{tool}_ABI_COMPILED": "ON" for tool in ("CXX", "CUDA")},
        **{f"CMAKE_{tool}_COMPILER_WORKS": "ON" for tool in ("CXX", "CUDA")},
        **{
            f"FLASH_{family.NAME.upper()}_GENCODE": ";".join(plan.selection.gencode(family))
            for family in families()
        },
        "FLASH_PYTHON_INCLUDE": plan.python_include,
        "FLASH_EXTENSION_SUFFIX": plan.extension_suffix,
        "FLASH_CUDA_INCLUDE": plan.nvcc.include_dir,
        "FLASH_CUDA_LIBRARY": plan.nvcc.library_dir,
        "FLASH_RECORD_COMPILE": _LAUNCHER,
    }
    command = [str(plan.cmake.path), "-G", "Ninja", "-S", str(plan.root), "-B", str(plan.directory)]
    return command + [f"-D{name}={value}" for name, value in values.items()]


def set_list(name: str, values: Sequence[str]) -> str:
    """A line of CMake that gives a list its values."""
    return f"set({name}\n" + "".join(f"    {value}\n" for value in values) + ")\n"


def family_lists(sources: Mapping[str, Sequence[str]]) -> str:
    """Lines of CMake: the families of kernels, as variables spell them, and the sources of each."""
    spelt = {family.upper(): files for family, files in sources.items()}
    lists = [set_list(f"FLASH_{family}_SOURCES", files) for family, files in spelt.items()]
    return set_list("FLASH_FAMILIES", [*spelt]) + "".join(lists)


def object_of(target: str, source: str) -> str:
    """Where CMake puts an object, relative to the build directory as the source is."""
    return f"CMakeFiles/{target}.dir/{source}.o"


def compile(plan: Plan, lock: int, targets: Sequence[str] = ("_C",)) -> None:
    """Runs ninja. Its output is the progress that the user sees."""
    _drop_half_line(plan.directory / ".ninja_log")
    command = [str(plan.ninja.path), "-C", str(plan.directory), f"-j{plan.jobs.count}", *targets]
    if _run(command, plan, lock, None).returncode != 0:
        raise BuildError(f"the build failed in {plan.directory} (messages above)")


def _drop_half_line(log: Path) -> None:
    """ninja appends to its log, and would lose the first line after one without an end."""
    data = log.read_bytes() if log.is_file() else b""
    if data and not data.endswith(b"\n"):
        with log.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _run(
    command: list[str], plan: Plan, lock: int, output: IO[str] | None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a tool that holds the build's lock as we do, and that ends when we are killed. Without
    the latter, ninja and its compilers would go on, and the next build wait for them."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def end_with_parent() -> None:  # in the child, before the tool
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    # CMake tries nvcc out by linking a program, but the wheels' nvcc does not find its libraries. A
    # -L in CMAKE_CUDA_FLAGS would need quotes, which not every CMake takes off again.
    folders = [str(plan.nvcc.library_dir), plan.nvcc.env.get("LIBRARY_PATH", "")]
    return subprocess.run(
        command,
        env={**plan.nvcc.env, "LIBRARY_PATH": ":".join(filter(None, folders))},
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        stdin=subprocess.DEVNULL,
        pass_fds=(lock,),
        preexec_fn=end_with_parent,
    )
