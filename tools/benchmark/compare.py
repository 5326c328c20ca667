#!/usr/bin/env python3
"""Compare two runs of pt_bench.py: see --help."""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import flash_helpers  # noqa: F401
except ImportError:  # from a source tree that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("py", "")]

from flash_helpers.base.tool import guarded
from flash_lab.bench.compare_cli import main

if __name__ == "__main__":
    sys.exit(guarded("compare.py", main))
