#!/usr/bin/env python3
"""Check the sixteen steps against their entries: see --help."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    door = runpy.run_path(str(Path(__file__).resolve().parents[1] / "door.py"))
    door["enter"]("tests.previous.check_steps", tree_first=True)
