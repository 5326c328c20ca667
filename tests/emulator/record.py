"""Records an H200's answers to the micro-kernels, those of sm_80 and those of sm_90a; CI then
repeats the comparison without a GPU.

    PYTHONPATH=py:. python3 -m tests.emulator.record [--out DIR] [--suite NAME] [--jobs N]

Writes the answers over those that the tests read (`--help` names the files), or into DIR as
answers-sm80.npz and answers-sm90a.npz. Needs numpy, nvcc and a CUDA driver; to say how many answers
differ from the emulator's, a C++ compiler. Every entry runs twice, each time in a process of its
own: one that faults or hangs takes no other with it, and is left out. Run it again when a
micro-kernel is added or changed. Exit codes: 0 all recorded, 1 recorded but the emulator answers
differently, 2 usage, 3 some entries failed, 4 none could be run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .conformance import emulated, suite
from .conformance.compare import mismatches
from .conformance.device import Device, run_on_gpu
from .conformance.micro_kernel import HEADER, MicroKernels
from .sm90.conformance import suite as sm90_suite
from .sm90.conformance.hopper_kernel import HEADER as SM90_HEADER

TIMEOUT = 90  # seconds for one entry, nvcc included
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Suite:
    answers: Path
    kernels: Callable[[], Sequence[MicroKernels]]
    emulated: Callable[[MicroKernels], Any]
    device: type[Device]
    header: str
    architecture: str  # "": the device's

    def cases(self, entries: Any) -> list[suite.KernelCase]:
        return [(item, case) for item in self.kernels() if item.entry in entries
                for case in item.cases]  # fmt: skip


SUITES = {
    "sm80": Suite(suite.ANSWERS, suite.suite, emulated.run, Device, HEADER, ""),
    "sm90a": Suite(
        sm90_suite.ANSWERS,
        sm90_suite.suite,
        lambda kernels: sm90_suite.emulated(kernels.entry),
        sm90_suite.HopperDevice,
        SM90_HEADER,
        "sm_90a",
    ),
}
Answer = tuple[Any, dict[str, str]]  # an output buffer, and what it was made with


def run_child(name: str, entry: str, output: Path) -> None:
    """In the child process."""
    chosen = SUITES[name]
    (kernels,) = (item for item in chosen.kernels() if item.entry == entry)
    out, about = run_on_gpu(kernels, chosen.device, chosen.header, chosen.architecture)
    np.savez(output, out=out, about=np.frombuffer(json.dumps(about).encode(), np.uint8))


def run_entry(command: Sequence[str], timeout: float) -> Answer | str:
    """What a child process answers, or why it does not."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.npz")
        try:
            done = subprocess.run(
                [*command, str(output)], capture_output=True, text=True, timeout=timeout, cwd=ROOT
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {timeout} s"
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return f"exit code {done.returncode}: {last}"
        with np.load(output, allow_pickle=False) as file:
            return file["out"], json.loads(file["about"].tobytes())


def answer_twice(command: Sequence[str], timeout: float) -> Answer | str:
    first = run_entry(command, timeout)
    second = first if isinstance(first, str) else run_entry(command, timeout)
    if isinstance(first, str) or isinstance(second, str):
        return second
    return first if np.array_equal(first[0], second[0]) else "two runs differ"


def record(
    name: str, path: Path, jobs: int, child: Sequence[str] = (), timeout: float = TIMEOUT
) -> tuple[dict[str, Any], list[str]]:
    """Writes the answers of one suite; returns them by entry, and the entries that failed. `child`
    is the command that takes suite, entry and file."""
    command = [*(child or [sys.executable, "-m", "tests.emulator.record", "--child"]), name]
    entries = [kernels.entry for kernels in SUITES[name].kernels()]
    with ThreadPoolExecutor(jobs) as pool:
        answers = list(pool.map(lambda entry: answer_twice([*command, entry], timeout), entries))
    outputs: dict[str, Any] = {}
    about: dict[str, str] = {}
    failed = []
    for entry, answer in zip(entries, answers, strict=True):
        if isinstance(answer, str):
            failed.append(entry)
            print(f"NOT RECORDED {name} {entry}: {answer}", flush=True)
        else:
            outputs[entry], about = answer
    if outputs:
        cases = SUITES[name].cases(outputs)
        suite.save_answers(path, outputs, about, cases)
        print(f"{name}: {len(cases)} micro-kernels on {about}: {path}, {path.stat().st_size} bytes")
    return outputs, failed


def differing(name: str, outputs: dict[str, Any]) -> int:
    """How many recorded answers are not the emulator's; one result of each is printed."""
    different = 0
    for kernels in SUITES[name].kernels():
        if kernels.entry not in outputs:
            continue
        buffers = SUITES[name].emulated(kernels), outputs[kernels.entry]
        for case in kernels.cases:
            ours, theirs = (kernels.result(buffer, case) for buffer in buffers)
            wrong = mismatches(case, ours, theirs)
            different += bool(len(wrong))
            for i in wrong[:1]:
                print(f"DIFFERS {name} {case.key}: {len(wrong)} of {case.count}, result {i} is "
                      f"{ours[i]!r} in the emulator and {theirs[i]!r} there")  # fmt: skip
    count = len(SUITES[name].cases(outputs))
    print(f"{name}: {count - different} of {count} recorded answers are the emulator's")
    return different


def arguments() -> argparse.Namespace:
    files = "\n".join(f"{name}: {chosen.answers}" for name, chosen in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.emulator.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=files,
    )
    parser.add_argument("--out", type=Path, help="folder for the answers")
    parser.add_argument("--suite", choices=SUITES, action="append", help="default: all of them")
    parser.add_argument("--jobs", type=int, default=4, help="processes at a time (default 4)")
    given = parser.parse_args()
    if given.jobs < 1:
        parser.error(f"--jobs {given.jobs}: 1 or more")
    return given


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        run_child(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
        return 0
    given = arguments()
    paths = {name: chosen.answers for name, chosen in SUITES.items()}
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        paths = {name: given.out / f"answers-{name}.npz" for name in SUITES}
    results = {name: record(name, paths[name], given.jobs) for name in given.suite or SUITES}
    different = sum(differing(name, outputs) for name, (outputs, _) in results.items())
    if not any(outputs for outputs, _ in results.values()):
        return 4
    return 3 if any(failed for _, failed in results.values()) else int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
