"""Records a GPU's answers to the conformance suite; CI then repeats the comparison without one.

    PYTHONPATH=py:. python3 -m tests.emulator.conformance.record [FILE]

FILE defaults to answers.npz beside this script. Needs numpy, nvcc and a CUDA driver. Run it again
when a micro-kernel is added or changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .device import run_suite
from .suite import ANSWERS, all_cases, module_ptx, save_answers, suite


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ANSWERS
    outputs, about = run_suite(suite(), module_ptx())
    again, _ = run_suite(suite(), module_ptx())
    unstable = [entry for entry in outputs if (outputs[entry] != again[entry]).any()]
    if unstable:
        raise SystemExit(f"two runs differ in {', '.join(unstable)}: nothing recorded")
    save_answers(path, outputs, about)
    print(f"{len(all_cases())} micro-kernels on {about}: {path}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
