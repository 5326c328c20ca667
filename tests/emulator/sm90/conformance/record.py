"""Records an H200's answers to the micro-kernels of sm_90a.

    PYTHONPATH=py:. python3 -m tests.emulator.sm90.conformance.record [FILE]

FILE defaults to answers.npz beside this script. Needs numpy, nvcc and a CUDA driver. Every entry
runs twice, each time in a process of its own: one that faults or hangs takes no other with it,
and is left out of FILE. Prints how many answers differ from the emulator's
(test_sm90_conformance.py says where). Exit codes: 0 all recorded, 3 some entries failed, 4 none
could be run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ...conformance.compare import mismatches
from ...conformance.suite import save_answers
from .suite import ANSWERS, all_cases, emulated, run_on_gpu, suite

TIMEOUT = 90  # seconds for one entry, nvcc included
CHILD = "--run"


def run_child(entry: str, output: Path) -> None:
    """In the child process: one entry's output buffer, and what it was made with."""
    kernels = [item for item in suite() if item.entry == entry]
    outputs, about = run_on_gpu(kernels)
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(output, out=outputs[entry], about=text)


def run_entry(entry: str) -> tuple[Any, dict[str, str]] | str:
    """The output buffer and what it was made with, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.npz")
        command = [sys.executable, "-m", __spec__.name, CHILD, entry, str(output)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return f"no answer within {TIMEOUT} s"
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["no message"])[-1]
        with np.load(output, allow_pickle=False) as file:
            return file["out"], json.loads(file["about"].tobytes())


def collect() -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Output buffers by entry, what they were made with, and the entries that failed."""
    outputs: dict[str, Any] = {}
    about: dict[str, str] = {}
    failed = []
    for kernels in suite():
        first, second = (run_entry(kernels.entry) for _ in range(2))
        if isinstance(first, str) or isinstance(second, str):
            reason = first if isinstance(first, str) else second
        elif not np.array_equal(first[0], second[0]):
            reason = "two runs differ"
        else:
            outputs[kernels.entry], about = first
            continue
        failed.append(kernels.entry)
        print(f"NOT RECORDED {kernels.entry}: {reason}", flush=True)
    return outputs, about, failed


def compare(outputs: dict[str, Any]) -> None:
    same = 0
    for kernels, case in all_cases():
        if kernels.entry not in outputs:
            continue
        buffers = (emulated(kernels.entry), outputs[kernels.entry])
        ours, theirs = (kernels.result(buffer, case) for buffer in buffers)
        wrong = mismatches(case, ours, theirs)
        same += not len(wrong)
        if len(wrong):
            i = wrong[0]
            print(f"{len(wrong)} of {case.count} differ, result {i} is {ours[i]!r} here and "
                  f"{theirs[i]!r} there: {case.key}")  # fmt: skip
    print(f"{same} micro-kernels answer as the emulator does")


def main() -> int:
    if sys.argv[1:2] == [CHILD]:
        run_child(sys.argv[2], Path(sys.argv[3]))
        return 0
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ANSWERS
    outputs, about, failed = collect()
    if not outputs:
        return 4
    cases = [(kernels, case) for kernels, case in all_cases() if kernels.entry in outputs]
    save_answers(path, outputs, about, cases)
    print(f"{len(cases)} micro-kernels on {about}: {path}, {path.stat().st_size} bytes")
    compare(outputs)
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
