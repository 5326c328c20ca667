#!/usr/bin/env python3
"""Measure and profile warp-specialised attention on Hopper: see --help."""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import flash_helpers  # noqa: F401
except ImportError:  # from a source tree that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("py", "")]

from flash_helpers.base.tool import guarded
from flash_lab.ws_analysis.cli import main

if __name__ == "__main__":
    sys.exit(guarded("flash-attention-WS-hopper.py", main))
