#!/usr/bin/env python3
"""Numerics and speed of the Gluon kernels on this Hopper GPU: see --help."""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import flash_helpers  # noqa: F401
except ImportError:  # from a source tree that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("py", "")]

from flash_helpers.base.tool import EXIT_NO_DATA, guarded


def main() -> int:
    try:
        from flash_lab.correctness.gluon_cli import main as check
    except ImportError as error:  # torch or Triton
        print(f"gluon_check.py: no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    return check()


if __name__ == "__main__":
    sys.exit(guarded("gluon_check.py", main))
