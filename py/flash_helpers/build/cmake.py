"""Runs CMake and ninja."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ..kernel_configs import FAMILIES
from .errors import BuildError
from .plan import Plan
from .staging import content_hash

_CONFIGURED_MARK = "configured"  # holds the hash of everything that CMake was given
_LAUNCHER = Path(__file__).resolve().parent / "record_compile.sh"
_PR_SET_PDEATHSIG = 1


def configure(plan: Plan, lock: int) -> None:
    """Runs CMake unless it was given the same before: 0.3 s saved on every build."""
    directory = plan.directory
    command = _configure_command(plan)
    given = content_hash(
        {
            "command": "\0".join(command),
            "CMakeLists.txt": (plan.root / "CMakeLists.txt").read_text(),
            "sources.cmake": (directory / "sources.cmake").read_text(),
        }
    )
    mark = directory / _CONFIGURED_MARK
    if (directory / "build.ninja").is_file() and mark.is_file() and mark.read_text() == given:
        return
    mark.unlink(missing_ok=True)
    log = directory / "configure.log"
    with log.open("w") as output:
        done = _run(command, plan, lock, output)
    if done.returncode != 0:
        raise BuildError(f"CMake failed, see {log}:\n{log.read_text()}")
    mark.write_text(given)


def _configure_command(plan: Plan) -> list[str]:
    values = {
        "CMAKE_BUILD_TYPE": "None",  # all flags stand in CMakeLists.txt
        # Always named: CMake would remember the ninja of a temporary build environment.
        "CMAKE_MAKE_PROGRAM": plan.ninja,
        "CMAKE_CXX_COMPILER": plan.host.path,
        "CMAKE_CUDA_COMPILER": plan.nvcc.path,
        "CMAKE_CUDA_HOST_COMPILER": plan.host.path,
        **{
            f"FLASH_{family.upper()}_GENCODE": ";".join(plan.selection.of_family(family).gencode())
            for family in FAMILIES
        },
        "FLASH_PYTHON_INCLUDE": plan.python_include,
        "FLASH_EXTENSION_SUFFIX": plan.extension_suffix,
        "FLASH_CUDA_INCLUDE": plan.nvcc.include_dir,
        "FLASH_CUDA_LIBRARY": plan.nvcc.library_dir,
        "FLASH_RECORD_COMPILE": _LAUNCHER,
    }
    command = [str(plan.cmake), "-G", "Ninja", "-S", str(plan.root), "-B", str(plan.directory)]
    return command + [f"-D{name}={value}" for name, value in values.items()]


def set_list(name: str, values: Sequence[str]) -> str:
    """A line of CMake that gives a list its values."""
    return f"set({name}\n" + "".join(f"    {value}\n" for value in values) + ")\n"


def family_lists(sources: Mapping[str, Sequence[str]]) -> str:
    """Lines of CMake: the families of kernels, as variables spell them, and the sources of each."""
    spelt = {family.upper(): files for family, files in sources.items()}
    lists = [set_list(f"FLASH_{family}_SOURCES", files) for family, files in spelt.items()]
    return set_list("FLASH_FAMILIES", [*spelt]) + "".join(lists)


def forget_configuration(directory: Path) -> None:
    """Removes what CMake wrote, and keeps objects and ninja's logs."""
    (directory / _CONFIGURED_MARK).unlink(missing_ok=True)
    (directory / "CMakeCache.txt").unlink(missing_ok=True)
    (directory / "build.ninja").unlink(missing_ok=True)
    for compilers in (directory / "CMakeFiles").glob("[0-9]*"):
        shutil.rmtree(compilers, ignore_errors=True)


def object_of(target: str, source: str) -> str:
    """Where CMake puts an object, relative to the build directory as the source is."""
    return f"CMakeFiles/{target}.dir/{source}.o"


def compile(plan: Plan, lock: int, targets: Sequence[str] = ("_C",)) -> None:
    """Runs ninja. Its output is the progress that the user sees."""
    command = [str(plan.ninja), "-C", str(plan.directory), f"-j{plan.jobs.count}", *targets]
    if _run(command, plan, lock, None).returncode != 0:
        raise BuildError(f"the build failed in {plan.directory} (messages above)")


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

    return subprocess.run(
        command,
        env=_environment(plan),
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        stdin=subprocess.DEVNULL,
        pass_fds=(lock,),
        preexec_fn=end_with_parent,
    )


def _environment(plan: Plan) -> dict[str, str]:
    """CMake tries nvcc out by linking a program, but the wheels' nvcc does not find its libraries.
    A -L in CMAKE_CUDA_FLAGS would need quotes, which not every CMake takes off again."""
    folders = [str(plan.nvcc.library_dir), plan.nvcc.env.get("LIBRARY_PATH", "")]
    return {**plan.nvcc.env, "LIBRARY_PATH": ":".join(filter(None, folders))}
