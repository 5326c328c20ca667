#!/usr/bin/env python3
"""Write the C++ sources of a set of kernels into a build folder: see --help."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    door = runpy.run_path(str(Path(__file__).resolve().parents[1] / "door.py"))
    door["enter"]("flash_helpers.codegen.cli", tree_first=True)
