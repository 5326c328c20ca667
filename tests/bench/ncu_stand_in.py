"""A stand-in for ncu on PATH, and ncu_bench.py run with it."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.warm_python import run_script

REPOSITORY = Path(__file__).resolve().parents[2]
TOOL = REPOSITORY / "tools/benchmark/ncu_bench.py"
FAKE = Path(__file__).parent / "data/ncu/fake_ncu.py"
# The two kernels of the recordings, and the shape.
FAST = "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"
SLOW = "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"
SHAPE = ("--seq_lens=1024", "--batch=2", "--heads=16", "--runs=2", f"--kernels={SLOW};{FAST}")
# The tool imports torch for the environment only; the real one takes seconds.
TORCH = (
    "__version__ = '0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
)  # fmt: skip


def rows(output: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(output)))


class Bench:
    """The tool with a program in ncu's place; `mode` says how that one behaves."""

    def __init__(self, folder: Path) -> None:
        self.reader = "csv"
        self.log = folder / "log"
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "torch.py").write_text(TORCH)
        program = folder / "bin/ncu"
        program.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -ES {shlex.quote(str(FAKE))} "$@"\n'
        )
        program.chmod(0o755)

    def environment(self, mode: str, **more: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if k not in ("KERNELS", "NCU")}
        return {
            **clean,
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": f"{self.folder}:{REPOSITORY / 'py'}:{REPOSITORY}",
            "FAKE_NCU": mode,
            "FAKE_NCU_LOG": str(self.log),
            **more,
        }

    def __call__(
        self, mode: str, *arguments: str, shape: tuple[str, ...] = SHAPE, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return run_script(
            [TOOL, *shape, f"--reader={self.reader}", *arguments],
            self.environment(mode, **environment),
        )

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def install_report_module(self, text: str) -> None:
        """An ncu_report beside the program, where NVIDIA puts it."""
        folder = self.folder / "bin/extras/python"
        folder.mkdir(parents=True)
        (folder / "ncu_report.py").write_text(text)
        self.reader = "ncu-report"
