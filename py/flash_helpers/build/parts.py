"""A build in parts: some kernels can be measured while the others compile.

Every part is an extension of its own with some of the units, made of the same objects as the whole.
It names itself as the whole does (kernel set and fingerprint), since its kernels are the same.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..atomic_file import write_atomically
from ..codegen import Manifest, render_registry
from ..kernel_config import KernelConfig
from . import cmake
from .errors import BuildError
from .plan import Plan
from .staging import stage

FOLDER = "parts"  # of registries and libraries, in the build directory
_LINK_FLAGS = "link_flags.txt"  # which CMakeLists.txt writes


@dataclass(frozen=True)
class Part:
    number: int
    units: tuple[str, ...]  # CUDA sources, relative to the build directory
    configs: tuple[KernelConfig, ...]

    @property
    def registry(self) -> str:
        return f"{FOLDER}/registry_{self.number}.cpp"

    def library(self, plan: Plan) -> Path:
        return plan.directory / FOLDER / str(self.number) / plan.extension_name


def split(manifest: Manifest, prefix: str, at_most: int, jobs: int) -> list[Part]:
    """At most so many parts, each of whole rounds of `jobs` compilers, so that none has to wait at
    the end of a part; one part where there is but one round."""
    units: dict[str, list[KernelConfig]] = {}
    for kernel in manifest.kernels:
        units.setdefault(kernel.file, []).append(kernel.config)
    names = sorted(units)
    n_rounds = -(-len(names) // jobs)
    size = -(-n_rounds // max(1, at_most)) * jobs
    groups = [names[i : i + size] for i in range(0, len(names), size)]
    return [
        Part(
            number,
            tuple(f"{prefix}/{name}" for name in group),
            tuple(config for name in group for config in units[name]),
        )
        for number, group in enumerate(groups)
    ]


def write_registries(plan: Plan, parts: Sequence[Part]) -> list[str]:
    """The sources, relative to the build directory. Libraries of an earlier build go."""
    texts = {Path(part.registry).name: render_registry(part.configs) for part in parts}
    stage(texts, plan.directory / FOLDER)
    return [part.registry for part in parts]


def compile_parts(
    plan: Plan, lock: int, parts: Sequence[Part], host: Mapping[str, Sequence[str]]
) -> Iterator[Part]:
    """Yields every part when its library is complete. `host`: the sources of the CMake targets that
    all parts share, without the registry of the whole."""
    shared = [cmake.object_of(target, source) for target, files in host.items() for source in files]
    for part in parts:
        own = [cmake.object_of("flash_kernels", unit) for unit in part.units]
        own.append(cmake.object_of("flash_parts", part.registry))
        cmake.compile(plan, lock, [*shared, *own])
        _link(plan, part, [*own, *shared])
        yield part


def _link(plan: Plan, part: Part, objects: Sequence[str]) -> None:
    library = part.library(plan)
    library.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(".partial")
    flags = (plan.directory / _LINK_FLAGS).read_text().split("\n")
    command = [str(plan.host.path), *objects, "-o", str(unfinished), *filter(None, flags)]
    done = subprocess.run(
        command, cwd=plan.directory, capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode != 0:
        raise BuildError(f"part {part.number} cannot be linked: {done.stderr}")
    unfinished.chmod(0o755)
    unfinished.replace(library)  # whoever finds it finds all of it


def write_list(plan: Plan, parts: Sequence[Part], path: Path) -> None:
    """For whoever waits for the libraries: where they will be, and what they will hold."""
    items = [
        {"library": str(part.library(plan)), "kernels": [c.short_form() for c in part.configs]}
        for part in parts
    ]
    write_atomically(path, json.dumps(items).encode())
