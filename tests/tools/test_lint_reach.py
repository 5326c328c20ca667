"""The linters read every Python file of the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Top-level folders with sources; what builds and installers write lies beside them.
FOLDERS = ("csrc", "flash_attention", "previous_kernels", "py", "tests", "tools")


def test_ruff_reaches_every_file() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--show-files", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    seen = {Path(line) for line in done.stdout.splitlines()}
    files = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert len(files) > 400
    assert not sorted(files - seen)
    assert not any(path.is_relative_to(ROOT / "build") for path in seen)
