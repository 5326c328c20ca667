"""The process that kernels run in: python -m flash_lab.bench.worker MODULE:CLASS FD

Reads requests, one JSON object a line, from its standard input, and writes events to the file
descriptor FD (libraries print on standard output). It may be killed at any time.
"""

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping

from .measure import Backend, DeviceLostError, run_problem

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """A sweep that is killed must not leave a kernel running on the GPU."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the call
        sys.exit(1)


def load_backend(name: str) -> Backend:
    module, _, attribute = name.partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    return backend


def main(arguments: list[str]) -> int:
    name, descriptor, parent = arguments[0], int(arguments[1]), int(arguments[2])
    die_with_parent(parent)
    faulthandler.enable()
    events = os.fdopen(descriptor, "w", buffering=1)

    def emit(event: Mapping[str, object]) -> None:
        events.write(json.dumps(event) + "\n")

    backend = load_backend(name)
    emit({"event": "ready", "environment": backend.environment()})
    for line in sys.stdin:
        try:
            run_problem(json.loads(line), backend, emit)
        except DeviceLostError as error:
            emit({"event": "lost", "error": str(error)})
            return 3
        emit({"event": "done"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
