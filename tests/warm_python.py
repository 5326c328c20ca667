"""Runs a script as a new Python process would, in a child of one that has imported torch already:
the import takes two seconds, and many a test runs a tool that needs it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# The process that is forked does nothing but import: it has no state that a script could see.
_SERVER = """
import atexit, gc, json, os, runpy, sys, threading, traceback
import torch

def become(order):
    for number in (0, 1, 2):
        file = os.open(order["files"][number], os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["cwd"])
    sys.argv = order["argv"]
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [os.path.dirname(os.path.abspath(sys.argv[0])), *added]

def run():
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

gc.freeze()  # a collection in a child would copy every page
answers = os.fdopen(os.dup(1), "w", buffering=1)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        become(json.loads(line))
        code = run()
        # All of an interpreter's end but the freeing of what torch holds, which takes a second.
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 255)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers)
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Ends with this process."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER], env=environ, cwd="/", text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def run_script(
    arguments: Sequence[str | Path],
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """`arguments`: the script and its own. Raises RuntimeError if the server is gone."""
    server = _server()
    assert server.stdin and server.stdout
    argv = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory(prefix="flash-warm-") as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        for path in said:
            path.touch()
        order = {
            "argv": argv,
            "environ": dict(os.environ if environ is None else environ),
            "cwd": str(cwd or Path.cwd()),
            "files": [os.devnull, *map(str, said)],
        }
        print(json.dumps(order), file=server.stdin, flush=True)
        code = server.stdout.readline()
        if not code:
            raise RuntimeError(f"the process that has imported torch ended: {server.wait()}")
        return subprocess.CompletedProcess(argv, int(code), *(path.read_text() for path in said))
