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

from ..base.atomic_file import write_atomically
from ..codegen import Manifest, render_registry
from ..compilers.errors import BuildError
from ..kernels.contract import KernelConfig
from . import cmake
from .plan import Plan
from .staging import stage

FOLDER = "parts"  # of registries, in the build directory
_LINK_FLAGS = "link_flags.txt"  # which CMakeLists.txt writes


@dataclass(frozen=True)
class InParts:
    """At most `at_most` parts become usable while the rest compiles; the file `listed_in` says
    which, before any is there. They are put beside it: the build directory is another build's as
    soon as this one has ended, and who asked may use them for longer."""

    at_most: int
    listed_in: Path

    def library(self, part: Part, plan: Plan) -> Path:
        return self.listed_in.parent / f"part-{part.number}" / plan.extension_name


@dataclass(frozen=True)
class Part:
    number: int
    units: tuple[str, ...]  # CUDA sources, relative to the build directory
    configs: tuple[KernelConfig, ...]

    @property
    def registry(self) -> str:
        return f"{FOLDER}/registry_{self.number}.cpp"


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
    """The sources, relative to the build directory."""
    texts = {Path(part.registry).name: render_registry(part.configs) for part in parts}
    stage(texts, plan.directory / FOLDER)
    return [part.registry for part in parts]


def compile_parts(
    plan: Plan, lock: int, wanted: InParts, parts: Sequence[Part],
    host: Mapping[str, Sequence[str]],
) -> Iterator[Part]:  # fmt: skip
    """Yields every part when its library is complete. `host`: the sources of the CMake targets that
    all parts share, without the registry of the whole."""
    shared = [cmake.object_of(target, source) for target, files in host.items() for source in files]
    for part in parts:
        own = [cmake.object_of("flash_kernels", unit) for unit in part.units]
        own.append(cmake.object_of("flash_parts", part.registry))
        cmake.compile(plan, lock, [*shared, *own])
        _link(plan, wanted.library(part, plan), [*own, *shared])
        yield part


def _link(plan: Plan, library: Path, objects: Sequence[str]) -> None:
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = library.with_suffix(".partial").absolute()
    flags = (plan.directory / _LINK_FLAGS).read_text().split("\n")
    command = [str(plan.host.path), *objects, "-o", str(unfinished), *filter(None, flags)]
    done = subprocess.run(
        command, cwd=plan.directory, capture_output=True, text=True, check=False, errors="replace"
    )  # fmt: skip
    if done.returncode != 0:
        raise BuildError(f"{library} cannot be linked: {done.stderr}")
    unfinished.chmod(0o755)
    unfinished.replace(library)  # whoever finds it finds all of it


def write_list(plan: Plan, wanted: InParts, parts: Sequence[Part]) -> None:
    """For whoever waits for the libraries: where they will be, and what they will hold. What an
    earlier build left there goes."""
    items = []
    for part in parts:
        library = wanted.library(part, plan)
        library.unlink(missing_ok=True)
        kernels = [config.short_form() for config in part.configs]
        items.append({"library": str(library), "kernels": kernels})
    write_atomically(wanted.listed_in, json.dumps(items).encode())
