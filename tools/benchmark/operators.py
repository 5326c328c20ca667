#!/usr/bin/env python3
"""Operators over sizes, and beside what they were: see --help."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    door = runpy.run_path(str(Path(__file__).resolve().parents[1] / "door.py"))
    door["enter"]("flash_lab.operators.operators_cli")
