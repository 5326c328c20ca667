"""The way from a file of these folders to its command, installed or not.

Each of them calls a module's `command`, as the installed commands do (pyproject.toml,
[project.scripts]): `flash-pt-bench` is pt_bench.py.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import NoReturn

TREE = Path(__file__).resolve().parents[1]


def enter(module: str, tree_first: bool = False) -> NoReturn:
    """Ends the process with the exit code of the module's `command`.

    The packages are the installed ones, else those of this source tree; with `tree_first` these in
    any case: for commands that are about the tree.
    """
    if tree_first or importlib.util.find_spec("flash_helpers") is None:
        sys.path[:0] = [str(TREE / "py"), str(TREE)]
    sys.exit(importlib.import_module(module).command())
