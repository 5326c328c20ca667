#!/usr/bin/env python3
"""Compare two runs of pt_bench.py: see --help."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    door = runpy.run_path(str(Path(__file__).resolve().parents[1] / "door.py"))
    door["enter"]("flash_lab.bench.compare_cli")
