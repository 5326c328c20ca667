"""Where a number came from: what has to be known to measure it again."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

from ..paths import repository_root

UNKNOWN = "unknown"


def provenance(argv: list[str] | None = None) -> dict[str, str]:
    """Commit, command, date; and on a CUDA machine GPU, driver and versions."""
    root = repository_root()
    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(root),
        "command": " ".join(["python", *(sys.argv if argv is None else argv)]),
        "python": sys.version.split()[0],
    }
    return found | _cuda()


def _commit(root: Path | None) -> str:
    if root is None:
        return f"{UNKNOWN} (installed package)"
    commit = _output(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"])
    if commit == UNKNOWN:
        return commit
    changed = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return commit if not changed else f"{commit} (dirty)"


def _cuda() -> dict[str, str]:
    import torch

    versions = {"torch": str(torch.__version__)}
    if not torch.cuda.is_available():
        return versions | {"gpu": "none"}
    query = ["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm"]
    state = _output([*query, "--format=csv,noheader"]).splitlines()
    return versions | {
        "gpu": torch.cuda.get_device_name(),
        "driver, power limit, top SM clock": state[0] if state else UNKNOWN,
        "cuda": torch.version.cuda or UNKNOWN,
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
    }


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip()
