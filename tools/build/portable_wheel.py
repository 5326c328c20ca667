#!/usr/bin/env python3
"""Platform tags of wheels: see --help."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    door = runpy.run_path(str(Path(__file__).resolve().parents[1] / "door.py"))
    door["enter"]("flash_helpers.build.portable_wheel", tree_first=True)
