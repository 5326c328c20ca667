"""Finding ncu, and running run_kernels.py under it so that nothing is left behind.

Commands are lists, never text for a shell. ncu and its target get a process group of their own:
Ctrl-C, SIGTERM and a time limit end both.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from flash_helpers.base.paths import python_path

from ..correctness import run_cli
from .ncu_classify import KERNEL_FILTER
from .ncu_messages import advise
from .ncu_metrics import Metric
from .ncu_read import ReadError, Reading, find_report_module, read_csv, read_report

CLOCK_CONTROLS = ("none", "base")
READERS = ("auto", "ncu-report", "csv")
GRACE_S = (10.0, 5.0)  # after SIGINT, after SIGTERM


class NcuError(RuntimeError):
    """ncu cannot be used at all; the message says what to do."""


class NcuTimeoutError(RuntimeError):
    """ncu and its target were stopped."""


@dataclass(frozen=True)
class Ncu:
    """How to profile. `module`: NVIDIA's report reader; None reads ncu's CSV output."""

    path: Path
    version: str
    module: ModuleType | None
    clock_control: str
    timeout_s: float
    metrics: tuple[Metric, ...]
    kernel_filter: str = KERNEL_FILTER
    launch_count: int = 0  # kernels to profile; 0: all that pass the filter

    def command(self, target: Sequence[str], report: Path) -> list[str]:
        output = (
            ["--csv", "--print-units", "base"]
            if self.module is None
            else ["--export", str(report), "--force-overwrite"]
        )
        return [
            str(self.path), *output,
            "--metrics", ",".join(metric.name for metric in self.metrics),
            "--clock-control", self.clock_control,
            "--target-processes", "all",
            "--kernel-name-base", "demangled",
            "--kernel-name", self.kernel_filter,
            *(["--launch-count", str(self.launch_count)] if self.launch_count else []),
            *target,
        ]  # fmt: skip


@dataclass(frozen=True)
class Run:
    """`text`: what ncu and the target printed, errors last."""

    code: int
    text: str
    reading: Reading
    read_error: str


def find_ncu(wanted: str | None) -> Path:
    """--ncu, else $NCU, else PATH, else where NVIDIA's packages put it."""
    named = wanted or os.environ.get("NCU")
    if named:
        found = shutil.which(named)
        if found is None:
            source = "--ncu" if wanted else "NCU"
            raise NcuError(f"{source} {named!r} is not a program that can be run")
        return Path(found)
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    usual = [Path("/usr/local/cuda/bin/ncu"), *Path("/opt/nvidia/nsight-compute").glob("*/ncu")]
    installed = [path for path in usual if os.access(path, os.X_OK)]
    if installed:
        return installed[-1]
    raise NcuError(
        "ncu is not on PATH: install NVIDIA Nsight Compute (it comes with the CUDA toolkit; "
        "Debian and Ubuntu: the package nsight-compute from NVIDIA's repository), or name the "
        "program with --ncu or NCU. pt_bench.py measures without it"
    )


def open_ncu(
    path: Path, reader: str, clock_control: str, timeout_s: float, metrics: tuple[Metric, ...]
) -> Ncu:
    """Asks ncu its version, and looks for the report reader where `reader` wants one."""
    try:
        asked = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NcuError(f"{path} does not run: {error}") from None
    version = re.search(r"Version (\S+)", asked.stdout)
    if asked.returncode or version is None:
        said = " ".join((asked.stdout + asked.stderr).split())[:300]
        raise NcuError(f"{path} --version exits with {asked.returncode}: {said or 'no output'}")
    # Not by default: ncu_report 2025.3.1 and torch in one process end in a segmentation fault (seen
    # on an H200 machine).
    module = find_report_module(path) if reader == "ncu-report" else None
    if reader == "ncu-report" and module is None:
        raise NcuError(
            "the Python module ncu_report is not there: pip install ncu-report, or --reader csv"
        )
    return Ncu(path, version[1], module, clock_control, timeout_s, metrics)


def profile(ncu: Ncu, target: Sequence[str]) -> Run:
    """Runs `target` under ncu. Raises NcuTimeoutError, and KeyboardInterrupt after clearing up."""
    with tempfile.TemporaryDirectory(prefix="ncu-bench-") as folder:
        report = Path(folder) / "report.ncu-rep"
        code, text = _run_group(ncu.command(target, report), ncu.timeout_s, Path(folder))
        try:
            reading, error = _read(ncu, report, text), ""
        except ReadError as problem:
            reading, error = Reading([], []), str(problem)
    return Run(code, text, reading, error)


def _read(ncu: Ncu, report: Path, text: str) -> Reading:
    if ncu.module is None:
        return read_csv(text)
    if not report.is_file():
        return Reading([], [])  # nothing was profiled; the text says why
    try:
        return read_report(report, ncu.module, [metric.name for metric in ncu.metrics])
    except ReadError as error:
        # The module may be older than ncu, which can always read its own report.
        imported = import_report(ncu.path, report, ncu.timeout_s)
        reading = read_csv(imported.stdout)
        if not reading.launches:
            said = "; ".join(advise(imported.stdout + imported.stderr)) or "no table"
            raise ReadError(f"{error}; ncu --import: {said}. Try --reader csv") from None
        return reading


def import_report(
    ncu: Path, report: Path, timeout_s: float, *options: str
) -> subprocess.CompletedProcess[str]:
    """What ncu itself reads from its report, as CSV in base units: for read_csv."""
    return subprocess.run(
        [str(ncu), "--import", str(report), *options, "--csv", "--print-units", "base"],
        capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
        env=_environment(),
    )  # fmt: skip


def _environment() -> dict[str, str]:
    """Numbers with a decimal point, whatever the user's locale."""
    return {**os.environ, "LC_ALL": "C", "PYTHONPATH": python_path()}


def _run_group(command: list[str], timeout_s: float, folder: Path) -> tuple[int, str]:
    # Files instead of pipes: no reader is needed, and what a killed process wrote stays.
    paths = (folder / "stdout", folder / "stderr")
    with paths[0].open("wb") as out, paths[1].open("wb") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            env=_environment(), start_new_session=True,
        )  # fmt: skip
        code = -1
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NcuTimeoutError(f"it was stopped after {timeout_s:g} s (--timeout)") from None
        finally:
            if code:
                _end(process)
    stdout, stderr = (path.read_text(errors="replace") for path in paths)
    return code, f"{stdout}\n{stderr}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the whole group, politely first: ncu's target too, also when ncu itself has crashed."""
    with suppress(KeyboardInterrupt):  # a second Ctrl-C: no more politeness
        for number, grace in ((signal.SIGINT, GRACE_S[0]), (signal.SIGTERM, GRACE_S[1])):
            if process.poll() is None:
                os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(grace)
    with suppress(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def target_command(arguments: Sequence[str]) -> list[str]:
    """run_kernels.py of these packages, with these arguments."""
    return [sys.executable, "-m", run_cli.__name__, *arguments]
