#!/usr/bin/env python3
"""Measure the measuring tools on this GPU: see --help."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    door = runpy.run_path(str(Path(__file__).resolve().parents[1] / "door.py"))
    door["enter"]("tests.acceptance.cli", tree_first=True)
