"""Where a number came from: what has to be known to measure it again."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import shlex
import subprocess
import sys

from flash_helpers.base.lazy import torch
from flash_helpers.base.paths import repository_root

UNKNOWN = "unknown"
# The commit whose files were copied here, where git does not know or knows an older one.
COMMIT_VARIABLE = "FLASH_ATTENTION_COMMIT"


def provenance(argv: list[str] | None = None) -> dict[str, str]:
    """Commit, command, date; and on a CUDA machine GPU, driver and versions."""
    state = source_state()
    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": f"{state['commit']}{' (dirty)' if state['dirty'] is True else ''}",
        "command": command_line(argv),
        "python": platform.python_version(),
    }
    return found | {name: str(value) for name, value in device_state().items()}


def command_line(argv: list[str] | None = None) -> str:
    """The program and its arguments, quoted so that a shell takes them back (but for bytes that are
    no text, which no JSON could hold)."""
    text = shlex.join(["python", *(sys.argv if argv is None else argv)])
    return text.encode(errors="backslashreplace").decode()


def source_state() -> dict[str, str | bool]:
    """The commit, whether tracked files differ from it, and if so a digest of the difference."""
    if copied := os.environ.get(COMMIT_VARIABLE):
        return {"commit": copied, "dirty": UNKNOWN}
    root = repository_root()
    commit = UNKNOWN
    if root is not None:
        commit = _output(["git", "-C", str(root), "rev-parse", "--short=12", "@"])
    if commit == UNKNOWN or root is None:
        return {"commit": UNKNOWN, "dirty": UNKNOWN}
    difference = _output(["git", "-C", str(root), "diff", "@"])
    state: dict[str, str | bool] = {"commit": commit, "dirty": bool(difference)}
    if difference:
        state["difference"] = hashlib.sha256(difference.encode()).hexdigest()[:12]
    return state


def device_state() -> dict[str, str | int]:
    """GPU, driver and versions as seen by this process; imports torch."""
    versions: dict[str, str | int] = {"torch": str(torch.__version__)}
    if not torch.cuda.is_available():
        return versions | {"gpu": "none"}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = f"GPU-{getattr(properties, 'uuid', UNKNOWN)}"
    query = ["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "-i", uuid]
    state = [part.strip() for part in _output([*query, "--format=csv,noheader"]).split(",")]
    driver, power, clock = state if len(state) == 3 else (UNKNOWN,) * 3
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    found: dict[str, str | int] = {
        "gpu": properties.name,
        "gpu_uuid": uuid,
        "gpu_sms": properties.multi_processor_count,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "driver": driver,
        "power_limit": power,
        "top_sm_clock": clock,
        "cuda": torch.version.cuda or UNKNOWN,
        "cudnn": str(cudnn),
    }
    return versions | found


def library_state() -> dict[str, str | int]:
    """Which build of our kernels is loaded; empty where none is."""
    import flash_attention

    try:
        info = flash_attention.library_info()
    except ImportError:
        return {}
    return {
        "build_fingerprint": info.fingerprint,
        "build_kernels": info.kernel_set,
        "build_architectures": ",".join(info.architectures),
    }


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip()
