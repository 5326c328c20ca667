"""One build from start to end: stage, generate, configure, compile, check, publish."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import codegen
from ..atomic_file import write_atomically
from ..codegen.generate import DEFAULT_CONFIGS_PER_UNIT
from ..kernel_configs import FAMILIES
from . import cmake, report
from . import parts as in_parts
from .errors import BuildError
from .lock import build_lock
from .plan import Plan, make_plan, no_architecture_message
from .staging import content_hash, read_headers, read_sources, stage

CONFIGS_PER_UNIT = DEFAULT_CONFIGS_PER_UNIT

_STAGED_FOLDERS = ("include", "runtime", "bindings")
_RUNNING_MARK = "running"  # exists while a build runs, and after one that was killed


@dataclass(frozen=True)
class Result:
    directory: Path
    extension: Path  # in the build directory
    rows: list[report.Row]
    seconds: float


@dataclass(frozen=True)
class InParts:
    """At most `at_most` parts become usable while the rest compiles; the file `listed_in` says
    which, before any is there."""

    at_most: int
    listed_in: Path


def build(environ: Mapping[str, str] | None = None, parts: InParts | None = None) -> Result:
    """Builds what the environment asks for. Raises BuildError; nothing is published then."""
    return build_plan(make_plan(environ), parts)


def build_plan(plan: Plan, parts: InParts | None = None) -> Result:
    begin = time.monotonic()
    print(_describe(plan), flush=True)
    if plan.skipped:
        message = no_architecture_message(len(plan.skipped), plan.kernel_set, plan.selection)
        print(f"flash_attention: left out: {message}", flush=True)
    try:
        with build_lock(plan.directory / "lock") as lock:
            rows = _build_locked(plan, lock, parts)
    except OSError as error:  # no space, read-only, …: one line, not a traceback
        where = f" {error.filename}:" if error.filename else ""
        raise BuildError(f"cannot build in {plan.directory}:{where} {error.strerror}") from error
    seconds = time.monotonic() - begin
    return Result(plan.directory, plan.directory / plan.extension_name, rows, seconds)


def _describe(plan: Plan) -> str:
    return (
        f"flash_attention: {len(plan.configs)} kernels (KERNELS={plan.kernel_set}) for "
        f"{', '.join(plan.selection.names())} ({plan.selection.reason}); nvcc {plan.nvcc.version} "
        f"from {plan.nvcc.source}; {plan.jobs.count} jobs ({plan.jobs.reason})"
    )


def _build_locked(plan: Plan, lock: int, parts: InParts | None) -> list[report.Row]:
    mark = plan.directory / _RUNNING_MARK
    if mark.exists():
        _drop_unfinished(plan)
    mark.touch()
    try:
        rows = _compile_and_check(plan, lock, parts)
    except BuildError:
        mark.unlink()  # it failed in good order: ninja has removed what it did not finish
        raise
    mark.unlink()
    return rows


def _compile_and_check(plan: Plan, lock: int, wanted: InParts | None) -> list[report.Row]:
    inputs = _write_inputs(plan, wanted)
    cmake.configure(plan, lock)
    if wanted is not None:
        in_parts.write_list(plan, inputs.parts, wanted.listed_in)
    for part in in_parts.compile_parts(plan, lock, inputs.parts, inputs.host):
        print(f"part {part.number}: {len(part.configs)} kernels can be measured", flush=True)
    cmake.compile(plan, lock)
    units = [unit for units in inputs.kernels.values() for unit in units]
    rows = report.collect(plan.directory, units)
    for family in FAMILIES:
        configs = [config for config in plan.configs if config.FAMILY == family]
        report.check_complete(rows, configs, plan.selection.of_family(family).names())
    report.check_spills(rows)
    return rows


def _drop_unfinished(plan: Plan) -> None:
    """A build was killed here. Objects are complete or absent (record_compile.sh); the linker and
    CMake write in place."""
    (plan.directory / plan.extension_name).unlink(missing_ok=True)
    cmake.forget_configuration(plan.directory)


@dataclass(frozen=True)
class _Inputs:
    """Sources, relative to the build directory. `kernels`: by family. `host`: by CMake target,
    those that every part of the build needs."""

    kernels: dict[str, list[str]]
    host: dict[str, list[str]]
    parts: list[in_parts.Part]


def _write_inputs(plan: Plan, wanted: InParts | None) -> _Inputs:
    """Everything that ninja will see."""
    directory = plan.directory
    staged = read_sources(plan.root / "csrc", _STAGED_FOLDERS)
    staged |= read_sources(plan.root, ("previous_kernels",))
    stage(staged, directory / "staged")
    stage(read_headers(plan.pybind11_include, "pybind11"), directory / "pybind11")
    manifest = codegen.generate(
        directory / "generated", plan.configs, configs_per_unit=CONFIGS_PER_UNIT
    )
    kernels = {
        family: [f"generated/{unit}" for unit in manifest.units(family)] for family in FAMILIES
    }
    stage({"build_info.cpp": _build_info(plan, staged)}, directory / "info")
    runtime = ["info/build_info.cpp", *_units_below(staged, "runtime/")]
    bindings = _units_below(staged, "bindings/")
    parts = []
    if wanted is not None:
        parts = in_parts.split(manifest, "generated", wanted.at_most, plan.jobs.count)
    if len(parts) == 1:  # the whole
        parts = []
    registries = in_parts.write_registries(plan, parts)
    codegen.write_if_changed(
        directory / "sources.cmake",
        cmake.family_lists(kernels)
        + cmake.set_list("FLASH_HOST_SOURCES", [f"generated/{manifest.registry}", *runtime])
        + cmake.set_list("FLASH_BINDING_SOURCES", bindings)
        + cmake.set_list("FLASH_PART_SOURCES", registries),
    )
    return _Inputs(kernels, {"flash_runtime": runtime, "_C": bindings}, parts)


def _units_below(staged: Mapping[str, str], prefix: str) -> list[str]:
    names = (name for name in staged if name.startswith(prefix) and name.endswith(".cpp"))
    return [f"staged/{name}" for name in names]


def _build_info(plan: Plan, staged: Mapping[str, str]) -> str:
    """The only generated file that changes with every change: it takes a tenth of a second."""
    identity = {
        **staged,
        "tools": plan.tools_fingerprint(),
        "architectures": ",".join(plan.selection.names()),
        "kernels": " ".join(config.kernel_name() for config in plan.configs),
        "CMakeLists.txt": (plan.root / "CMakeLists.txt").read_text(),
    }
    values = {
        "kKernelSet": plan.kernel_set,
        "kArchitectures": ",".join(plan.selection.names()),
        "kFingerprint": content_hash(identity),
    }
    lines = [f"const char* const {name} = {json.dumps(value)};" for name, value in values.items()]
    return (
        '// Generated by flash_helpers.build.driver; do not edit.\n#include "build_info.h"\n\n'
        "namespace flash::build_info {\n" + "\n".join(lines) + "\n}\n"
    )


def publish(extension: Path, folder: Path) -> Path:
    """Copies a finished extension into a package: readers see the old file or the new one. The
    file is replaced, not overwritten, so a process that has loaded the old one keeps it."""
    target = folder / extension.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        data = extension.read_bytes()
        if target.is_file() and target.read_bytes() == data:
            return target
        write_atomically(target, data, mode=0o755)
    except OSError as error:
        raise BuildError(f"cannot write {target}: {error.strerror}") from error
    return target
