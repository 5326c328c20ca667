"""Run one CUDA kernel on the CPU, from PTX or a .cu file, and prove what the launch does.

  python -m flash_helpers.emulator reduce.cu --entry reduce --grid 4 --block 256 \\
      --arg 'in:float32[1024]=random:7' --arg 'sums:float32[4]=->sums.npy' --count

Every --arg is one parameter of the kernel, in order:
  NAME:TYPE=NUMBER               a scalar: n:int32=5, x:float32=-1.5
  NAME:TYPE[SHAPE]=START         an array that the kernel may only read
  NAME:TYPE[SHAPE]=START->FILE   one that it may write; saved to FILE (.npy) afterwards
  NAME:TYPE[SHAPE]=START->       one that it may write, not kept
TYPE: int8 to int64, uint8 to uint64, float16, float32, float64. SHAPE: 1024 or 64,128.
START: FILE.npy, zeros, ones, random, random:SEED (floats: standard normal, integers: up to 100);
left out before ->, all bytes are 0xFF, which is NaN.

Exit codes: 0 the kernel ran and broke no rule, 1 the emulator found an error in the kernel (no
file is written then), 2 usage, 4 the kernel could not be run (unreadable or unsupported PTX, no
compiler), 130 interrupted.
"""

import argparse
import queue
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...base.outputs import OutputError, check_outputs, write_outputs
from ..counters import count_tables
from ..counters.counts import Counts, from_csv, to_csv
from ..errors import (
    EmulatorBuildError,
    EmulatorError,
    InvalidLaunchError,
    KernelError,
    PtxSyntaxError,
)
from ..translator.ptx_parser import PtxFile
from .cli_arguments import Argument, Prepared, UsageError, parse_argument, prepare
from .launch import EmulatedKernel, LaunchOptions, LaunchReport, compile_kernel
from .shape import Dim3

OK, KERNEL_ERROR, USAGE, NO_DATA, INTERRUPTED = 0, 1, 2, 4, 130
PTX_ARCHITECTURE = "compute_80"
Result = TypeVar("Result")


def _dimensions(text: str) -> Dim3:
    if not re.fullmatch(r"[1-9]\d{0,9}(,[1-9]\d{0,9}){0,2}", text, re.A):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; expected X, X,Y or X,Y,Z, from 1 on"
        )
    x, y, z = (*(int(part) for part in text.split(",")), 1, 1)[:3]
    return x, y, z


def _natural(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text, re.A):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _schedule(text: str) -> dict[str, Any]:
    """The LaunchOptions that differ from the default."""
    match = re.fullmatch(r"(forward|reverse|random)(?::(\d{1,19}))?", text, re.A)
    if match is None or (match[2] and match[1] != "random"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a schedule; expected forward, reverse, random or random:SEED"
        )
    if match[1] != "random":
        return {"lane_order": match[1]}
    return {"lane_order": "random", "seed": int(match[2] or secrets.randbits(32))}


def _argument(text: str) -> Argument:
    try:
        return parse_argument(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flash_helpers.emulator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("kernel", metavar="KERNEL", help="a .ptx file, or a .cu file that nvcc compiles")
    add("--entry", metavar="NAME", help="the kernel's name in the PTX; not needed if it is alone")
    add("--grid", type=_dimensions, required=True, metavar="X[,Y[,Z]]", help="blocks")
    add("--block", type=_dimensions, required=True, metavar="X[,Y[,Z]]", help="threads of a block")
    add("--shared", type=_natural, default=0, metavar="BYTES", help="dynamic shared memory")
    add("--arg", type=_argument, action="append", default=[], metavar="ARG", help="see above")
    add("--schedule", type=_schedule, default={}, metavar="ORDER",
        help="of lanes and warps: forward (default), reverse, random, random:SEED")  # fmt: skip
    add("--no-races", action="store_true", help="do not look for races: faster")
    add("--workers", type=_natural, default=0, metavar="N", help="OS threads; default: all")
    add("--count", action="store_true", help="count instructions, bank conflicts and sectors")
    add("--csv", metavar="FILE", help="write the counts of every instruction there")
    add("--compare", metavar="FILE", help="an earlier --csv, shown beside these counts")
    add("--include", "-I", action="append", default=[], metavar="DIR", help="for nvcc")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    try:
        return _run(options)
    except KernelError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return KERNEL_ERROR
    except (UsageError, InvalidLaunchError) as error:
        print(f"usage error: {error}", file=sys.stderr)
        return USAGE
    except (EmulatorError, ImportError, OSError) as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return NO_DATA
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    before = _read_counts(options.compare) if options.compare else None
    _check_files(options)
    kernel = _load_kernel(options)
    prepared = [prepare(item) for item in options.arg]
    _check_parameters(kernel, prepared)
    for item in prepared:
        if item.note:
            print(item.note)
    launch_options = _launch_options(options)
    start = time.monotonic()
    report = _interruptible(
        lambda: kernel.launch(
            options.grid,
            options.block,
            options.shared,
            [item.parameter for item in prepared],
            [item.memory for item in prepared if item.memory],
            options=launch_options,
        )
    )
    _print_report(kernel.name, report, time.monotonic() - start, prepared)
    if report.counts:
        _print_counts(report.counts, before)
    return _write_files(report, prepared, options.csv)


def _write_files(report: LaunchReport, prepared: Sequence[Prepared], csv: str | None) -> int:
    """All that can be written; the exit code."""
    files: dict[Path, Callable[[], str | bytes]] = {
        Path(item.argument.target): item.content for item in prepared if item.argument.target
    }
    if csv and (counts := report.counts):
        files[Path(csv)] = lambda: to_csv(counts)
    problems = write_outputs(files)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if csv and report.counts and not problems:
        print(f"counts of {len(report.counts.instructions)} instructions -> {csv}")
    return USAGE if problems else OK


def _check_files(options: argparse.Namespace) -> None:
    """Before compiling and launching, which may take long, what would fail after it."""
    names = [item.name for item in options.arg]
    files = [*(item.target for item in options.arg if item.target), options.csv or ""]
    for what, values in (("name", names), ("file", [file for file in files if file])):
        if repeated := [value for value in values if values.count(value) > 1]:
            raise UsageError(f"the {what} {repeated[0]} is given twice")
    try:
        check_outputs({file: Path(file) for file in files if file})
    except OutputError as error:
        raise UsageError(str(error)) from None


def _launch_options(options: argparse.Namespace) -> LaunchOptions:
    if "seed" in options.schedule:
        seed = options.schedule["seed"]
        print(f"schedule: seed {seed} (repeat with random:{seed})")
    chosen: dict[str, Any] = dict(options.schedule)
    if options.no_races:
        chosen["races"] = "off"
    count = options.count or bool(options.csv or options.compare)
    return LaunchOptions(workers=options.workers or None, count=count, **chosen)


def _interruptible(work: Callable[[], Result]) -> Result:
    """Runs `work` on a daemon thread: a launch is one call into C++, during which this thread could
    not see Ctrl-C, and which must not hold up the end of the process."""
    results: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except BaseException as error:  # handed over, raised below
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    result = results.get()
    if isinstance(result, BaseException):
        raise result
    return result


def _load_kernel(options: argparse.Namespace) -> EmulatedKernel:
    path = Path(options.kernel)
    if path.suffix not in (".ptx", ".cu"):
        raise UsageError(f"{options.kernel}: expected a .ptx or a .cu file")
    is_ptx = path.suffix == ".ptx"
    ptx = path.read_text(errors="replace") if is_ptx else _compile_cuda(path, options.include)
    names = tuple(PtxFile(ptx).module.entries)
    if not names:
        raise PtxSyntaxError(f"{path} has no kernel (.entry)")
    entry = options.entry or (names[0] if len(names) == 1 else None)
    if entry not in names:
        wanted = f"no kernel {entry!r} in" if entry else "--entry is needed for"
        raise UsageError(f"{wanted} {path}; its kernels: {', '.join(names)}")
    return compile_kernel(ptx, entry)


def _compile_cuda(path: Path, include: Sequence[str]) -> str:
    from ...compilers.errors import BuildError
    from ...compilers.toolchain import find_nvcc
    from ...compilers.usable_paths import NVCC_REFUSED, check_path, nvcc_folder

    path.read_bytes()  # a missing file is no compiler error
    try:
        for given in (str(path), *include):
            check_path("a path for nvcc", given, NVCC_REFUSED)
        nvcc = find_nvcc()
    except BuildError as error:
        raise EmulatorBuildError(f"{path} needs nvcc: {error}") from error
    with tempfile.TemporaryDirectory(prefix="emulator-") as folder:
        output = Path(folder) / "kernel.ptx"
        flags = ["-ptx", f"-arch={PTX_ARCHITECTURE}", "-lineinfo", "-std=c++20"]
        command = [str(nvcc.path), *flags, "--expt-relaxed-constexpr"]
        command += [*(nvcc_folder("-I", folder) for folder in include), str(path)]
        done = subprocess.run(
            [*command, "-o", str(output)],
            capture_output=True, text=True, errors="replace", env=nvcc.env or None,
        )  # fmt: skip
        if done.returncode != 0:
            raise EmulatorBuildError(f"nvcc does not compile {path}:\n{done.stderr}")
        return output.read_text()


def _check_parameters(kernel: EmulatedKernel, prepared: Sequence[Prepared]) -> None:
    sizes = [len(item.parameter) for item in prepared]
    if sizes != list(kernel.parameter_sizes):
        given = ", ".join(
            f"{item.argument.name} {size}" for item, size in zip(prepared, sizes, strict=True)
        )
        raise UsageError(
            f"{kernel.name} takes parameters of {list(kernel.parameter_sizes)} bytes; "
            f"the --arg given have: {given or 'none'} (an array is a pointer of 8 bytes)"
        )


def _print_report(
    name: str, report: LaunchReport, seconds: float, prepared: Sequence[Prepared]
) -> None:
    print(f"{name}: {report.blocks} blocks, {report.threads} threads, no error, {seconds:.3g} s")
    for item in prepared:
        if item.array is None or not item.argument.written:
            continue
        first = ", ".join(str(value) for value in item.array.flat[:8])
        more = ", ..." if item.array.size > 8 else ""
        saved = f" -> {item.argument.target}" if item.argument.target else ""
        print(f"{item.argument.name}: {first}{more}{saved}")


def _read_counts(path: str) -> Counts:
    try:
        return from_csv(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--compare {path}: {error}") from None


def _print_counts(counts: Counts, before: Counts | None) -> None:
    print(count_tables.class_table(counts))
    print(count_tables.access_table(counts))
    if before is not None:
        print(f"A: {before.kernel}, B: {counts.kernel}; accesses only where they differ")
        print(count_tables.comparison_table(before, counts))
        print(count_tables.access_comparison_table(before, counts))
