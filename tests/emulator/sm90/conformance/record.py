"""Records an H200's answers to the micro-kernels of sm_90a.

    PYTHONPATH=py:. python3 -m tests.emulator.sm90.conformance.record [FILE]

FILE defaults to answers.npz beside this script. Needs numpy, nvcc and a CUDA driver. Prints how
many answers differ from the emulator's (test_sm90_conformance.py says where).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ...conformance.compare import mismatches
from ...conformance.suite import save_answers
from .suite import ANSWERS, all_cases, emulated, run_on_gpu, suite


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ANSWERS
    outputs, about = run_on_gpu(suite())
    again, _ = run_on_gpu(suite())
    unstable = [entry for entry in outputs if not np.array_equal(outputs[entry], again[entry])]
    if unstable:
        raise SystemExit(f"two runs differ in {', '.join(unstable)}: nothing recorded")
    save_answers(path, outputs, about, all_cases())
    print(f"{len(all_cases())} micro-kernels on {about}: {path}, {path.stat().st_size} bytes")
    for kernels, case in all_cases():
        ours, theirs = (
            kernels.result(buffer, case)
            for buffer in (emulated(kernels.entry), outputs[kernels.entry])
        )
        wrong = mismatches(case, ours, theirs)
        if len(wrong):
            print(f"{len(wrong)} of {case.count} differ: {case.key}")


if __name__ == "__main__":
    main()
