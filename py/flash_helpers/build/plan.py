"""What a build is: its tools, its architectures, its kernels, and the directory they lead to."""

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..base.paths import repository_root
from ..compilers.errors import BuildError
from ..compilers.nvcc_wheels import find_or_install_nvcc
from ..compilers.programs import Tool, find_tool
from ..compilers.toolchain import HostCompiler, Nvcc, find_host_compiler
from ..compilers.usable_paths import NVCC_TEMPORARY_REFUSED, TOOL_REFUSED, check_path
from ..kernels.contract import KernelConfig
from ..kernels.registry import family_of
from ..kernels.sets import DEFAULT_KERNELS, KERNELS_VARIABLE, get_kernels_to_build
from . import architectures, parallelism
from .architectures import Selection
from .staging import content_hash

# Variables that compilers read by themselves: another value is another build.
_COMPILER_VARIABLES = (
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CUDAFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CPATH",
)


# The word of KERNELS for the launcher alone, whose kernels are compiled on first use. No tool takes
# it: there is nothing to run.
NO_KERNELS = "none"


@dataclass(frozen=True)
class Plan:
    root: Path  # the source tree
    nvcc: Nvcc
    host: HostCompiler
    cmake: Tool
    ninja: Tool
    selection: Selection
    kernel_set: str
    configs: tuple[KernelConfig, ...]
    skipped: tuple[KernelConfig, ...]  # selected, but no architecture of the build has them
    jobs: parallelism.Jobs
    python_include: Path
    pybind11_include: Path
    extension_suffix: str
    compiler_environment: tuple[tuple[str, str], ...]

    @property
    def directory(self) -> Path:
        """Python, architectures and a fingerprint of the tools: builds that cannot share objects
        do not share a directory. The kernels are not part of it: they share what they can."""
        targets = "_".join(
            a.number + ("ptx" if a.ptx else "") for a in self.selection.architectures
        )
        tag = sys.implementation.cache_tag
        return self.root / "build" / f"{tag}-sm{targets}-{self.tools_fingerprint()[:10]}"

    def tools_fingerprint(self) -> str:
        parts = {
            "nvcc": f"{self.nvcc.version} {self.nvcc.path}",
            "host": f"{self.host.version} {self.host.path}",
            "extension": f"{self.extension_suffix} {self.python_include}",
            "environment": repr(self.compiler_environment),
        }
        return content_hash(parts)

    @property
    def extension_name(self) -> str:
        return f"_C{self.extension_suffix}"


def make_plan(environ: Mapping[str, str] = os.environ) -> Plan:
    root = repository_root()
    if root is None:
        raise BuildError(
            "this is an installed copy of flash_helpers: build from a source tree, or set "
            "PYTHONPATH to its py/ folder"
        )
    # Cheap questions first: a mistyped word should not wait for a download.
    check_path("the source tree", root)
    check_path("TMPDIR", environ.get("TMPDIR", ""), NVCC_TEMPORARY_REFUSED)
    kernel_set = environ.get(KERNELS_VARIABLE, DEFAULT_KERNELS)
    try:
        configs = [] if kernel_set == NO_KERNELS else get_kernels_to_build(kernel_set)
    except ValueError as error:
        message = str(error).replace("the key", KERNELS_VARIABLE, 1)
        raise BuildError(f"{message}, or {NO_KERNELS}") from error
    jobs = parallelism.jobs(environ)
    host = find_host_compiler(environ)
    nvcc = find_or_install_nvcc(environ)
    selection = architectures.select(nvcc.supported_targets, environ)
    possible = [
        config for config in configs if selection.of_family(family_of(config)).architectures
    ]
    if configs and not possible:
        raise BuildError(no_architecture_message(len(configs), kernel_set, selection))
    return Plan(
        root=root,
        nvcc=nvcc,
        host=host,
        cmake=find_tool("cmake", environ),
        ninja=find_tool("ninja", environ),
        selection=selection,
        kernel_set=kernel_set,
        configs=tuple(possible),
        skipped=tuple(config for config in configs if config not in possible),
        jobs=jobs,
        python_include=_python_include(),
        pybind11_include=_pybind11_include(),
        extension_suffix=sysconfig.get_config_var("EXT_SUFFIX"),
        compiler_environment=tuple(
            (name, environ[name]) for name in _COMPILER_VARIABLES if name in environ
        ),
    )


def no_architecture_message(n_kernels: int, kernel_set: str, selection: Selection) -> str:
    return (
        f"{n_kernels} kernels of KERNELS={kernel_set} need sm_90a, which is not among "
        f"{', '.join(selection.names())} ({selection.reason}): set "
        f"{architectures.ARCH_VARIABLE}=9.0a to build them"
    )


def _python_include() -> Path:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        raise BuildError(
            f"Python.h is not in {folder}: install Python's development files "
            "(Debian and Ubuntu: apt-get install python3-dev)"
        )
    check_path("the folder of Python.h", folder, TOOL_REFUSED)
    return folder


def _pybind11_include() -> Path:
    """pybind11's headers, or the copy that torch carries. Neither package is imported."""
    for package in ("pybind11", "torch"):
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or []) if spec else []:
            folder = Path(location) / "include"
            if (folder / "pybind11" / "pybind11.h").is_file():
                return folder / "pybind11"
    raise BuildError(f"pybind11 is not installed: {sys.executable} -m pip install pybind11")
