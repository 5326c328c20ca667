"""One build from start to end: stage, generate, configure, compile, check, publish."""

import errno
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import codegen
from ..base.atomic_file import write_atomically
from ..compilers.errors import BuildError
from ..kernels.family import Family
from ..kernels.registry import families
from . import cmake, report, sealed
from . import parts as in_parts
from .lock import build_lock
from .parts import InParts as InParts
from .plan import NO_KERNELS, Plan, make_plan, no_architecture_message
from .staging import content_hash, read_headers, read_sources, stage, without_originals

CONFIGS_PER_UNIT: int | None = None  # as each family says

_STAGED_FOLDERS = ("include", "runtime", "bindings")


@dataclass(frozen=True)
class Result:
    """What one build made. The extension in the build directory is not part of it: that is the next
    build's as soon as this one has ended."""

    directory: Path
    published: tuple[Path, ...]  # the extension, in the folders that were asked for
    rows: list[report.Row]
    seconds: float


def build(
    environ: Mapping[str, str] = os.environ,
    parts: InParts | None = None,
    publish_to: Sequence[Path] = (),
) -> Result:
    """Builds what the environment asks for and puts it into the folders `publish_to`. Raises
    BuildError; nothing is published then."""
    return build_plan(make_plan(environ), parts, publish_to)


def build_plan(plan: Plan, parts: InParts | None = None, publish_to: Sequence[Path] = ()) -> Result:
    begin = time.monotonic()
    print(
        f"flash_attention: {len(plan.configs)} kernels (KERNELS={plan.kernel_set}) for "
        f"{', '.join(plan.selection.names())} ({plan.selection.reason}); nvcc {plan.nvcc.version} "
        f"from {plan.nvcc.source}; {plan.jobs.count} jobs ({plan.jobs.reason})",
        flush=True,
    )
    if plan.skipped:
        message = no_architecture_message(len(plan.skipped), plan.kernel_set, plan.selection)
        print(f"flash_attention: left out: {message}", flush=True)
    try:
        with build_lock(plan.directory / "lock") as lock:
            rows = build_locked(plan, lock, parts)
            # Before anybody else may build here. The folders need no lock of their own, which two
            # build directories could want in different orders: a file is replaced in one step.
            library = plan.directory / plan.extension_name
            published = tuple(publish(library, folder) for folder in publish_to)
    except OSError as error:  # no space, read-only, …: one line, not a traceback
        where = f" {error.filename}:" if error.filename else ""
        message = f"cannot build in {plan.directory}:{where} {error.strerror}"
        wrong_kind = error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
        if wrong_kind and plan.directory.is_dir():
            message += f": delete {plan.directory} and build again"
        raise BuildError(message) from error
    return Result(plan.directory, published, rows, time.monotonic() - begin)


def build_locked(plan: Plan, lock: int, wanted: InParts | None) -> list[report.Row]:
    inputs = _write_inputs(plan, wanted)
    damaged = sealed.drop_damaged(plan.directory, _outputs(plan, inputs))
    if damaged:
        some = ", ".join(damaged[:3]) + (", …" if len(damaged) > 3 else "")
        print(f"flash_attention: {len(damaged)} damaged files are made again: {some}", flush=True)
    cmake.configure(plan, lock)
    if wanted is not None:
        in_parts.write_list(plan, wanted, inputs.parts)
        for part in in_parts.compile_parts(plan, lock, wanted, inputs.parts, inputs.host):
            print(f"part {part.number}: {len(part.configs)} kernels can be measured", flush=True)
    cmake.compile(plan, lock)
    units = [unit for units in inputs.kernels.values() for unit in units]
    rows = report.collect(plan.directory, units)
    for family in families():
        configs = [config for config in plan.configs if config.FAMILY == family.NAME]
        report.check_complete(rows, configs, plan.selection.of_family(family).names())
    report.check_spills(rows)
    _check_library(plan, inputs.fingerprint)
    return rows


def _check_library(plan: Plan, fingerprint: str) -> None:
    """What is published is complete and of these sources. ninja goes by time stamps, and a clock
    that was set back makes it take an old library for the new one."""
    library = plan.directory / plan.extension_name
    if not sealed.is_intact(library) or fingerprint.encode() not in library.read_bytes():
        raise BuildError(
            f"{library} is not what was built (was the clock set back, or the file changed?): "
            f"delete {plan.directory} and build again"
        )


@dataclass(frozen=True)
class _Inputs:
    """Sources, relative to the build directory. `kernels`: by family. `registry`: the table of the
    whole. `host`: by CMake target, those that every part of the build needs."""

    kernels: dict[str, list[str]]
    registry: str
    host: dict[str, list[str]]
    parts: list[in_parts.Part]
    fingerprint: str


def _outputs(plan: Plan, inputs: _Inputs) -> list[str]:
    """Everything that compilers and the linker make of them."""
    kernels = [unit for units in inputs.kernels.values() for unit in units]
    sources = [("flash_kernels", unit) for unit in kernels]
    sources += [("flash_runtime", inputs.registry)]
    sources += [(target, source) for target, files in inputs.host.items() for source in files]
    sources += [("flash_parts", part.registry) for part in inputs.parts]
    return [*(cmake.object_of(*source) for source in sources), plan.extension_name]


def _write_inputs(plan: Plan, wanted: InParts | None) -> _Inputs:
    """Everything that ninja will see."""
    directory = plan.directory
    staged: dict[str, str] = {}
    originals = ""
    elsewhere = [
        (family.SOURCES, ("include", "runtime")) for family in families() if family.SOURCES
    ]
    trees = [(plan.root / "csrc", _STAGED_FOLDERS), (plan.root, ("previous_kernels",)), *elsewhere]
    for root, folders in trees:
        staged |= read_sources(root, folders)
        originals += without_originals(root, folders)
    codegen.write_if_changed(directory / "originals.sed", originals)
    stage(staged, directory / "staged")
    stage(read_headers(plan.pybind11_include, "pybind11"), directory / "pybind11")
    manifest = codegen.generate(
        directory / "generated", plan.configs, configs_per_unit=CONFIGS_PER_UNIT,
        or_none=plan.kernel_set == NO_KERNELS,
    )  # fmt: skip
    kernels = {
        name: [f"generated/{unit}" for unit in manifest.units(name)]
        for name in order_of_families(manifest)
    }
    fingerprint = _fingerprint(plan, staged)
    stage({"build_info.cpp": _build_info(plan, fingerprint)}, directory / "info")
    runtime = ["info/build_info.cpp", *_units_below(staged, "runtime/")]
    bindings = _units_below(staged, "bindings/")
    parts = []
    if wanted is not None:
        parts = in_parts.split(manifest, "generated", wanted.at_most, plan.jobs.count)
    if len(parts) == 1:  # the whole
        parts = []
    registries = in_parts.write_registries(plan, parts)
    registry = f"generated/{manifest.registry}"
    codegen.write_if_changed(
        directory / "sources.cmake",
        cmake.family_lists(kernels)
        + cmake.set_list("FLASH_HOST_SOURCES", [registry, *runtime])
        + cmake.set_list("FLASH_BINDING_SOURCES", bindings)
        + cmake.set_list("FLASH_PART_SOURCES", registries),
    )
    host = {"flash_runtime": runtime, "flash_bindings": bindings}
    return _Inputs(kernels, registry, host, parts, fingerprint)


def order_of_families(manifest: codegen.Manifest) -> list[str]:
    """Those whose units take longest first: ninja begins with what stands first, and nobody should
    wait for one that was begun last."""

    def seconds_of_a_unit(family: Family) -> float:
        return manifest.configs_of_a_unit(family.NAME) * family.COMPILE_SECONDS

    return [family.NAME for family in sorted(families(), key=seconds_of_a_unit, reverse=True)]


def _units_below(staged: Mapping[str, str], prefix: str) -> list[str]:
    names = (name for name in staged if name.startswith(prefix) and name.endswith(".cpp"))
    return [f"staged/{name}" for name in names]


def _fingerprint(plan: Plan, staged: Mapping[str, str]) -> str:
    identity = {
        **staged,
        "tools": plan.tools_fingerprint(),
        "architectures": ",".join(plan.selection.names()),
        "kernels": " ".join(config.kernel_name() for config in plan.configs),
        "CMakeLists.txt": (plan.root / "CMakeLists.txt").read_text(),
    }
    return content_hash(identity)


def _build_info(plan: Plan, fingerprint: str) -> str:
    """The only generated file that changes with every change: it takes a tenth of a second."""
    values = {
        "kKernelSet": plan.kernel_set,
        "kArchitectures": ",".join(plan.selection.names()),
        "kFingerprint": fingerprint,
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
