"""The PTX of a configuration's kernel, as nvcc emits it: what the emulator runs and tests read."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from .build.nvcc_wheels import find_or_install_nvcc
from .build.toolchain import Nvcc
from .cache import cache_dir
from .codegen import render_translation_unit, source_fingerprint
from .codegen.sources import include_dirs
from .config import FlashForwardKernelConfig

# The Ampere family's instructions are all in sm_80, so its PTX is the same for every later GPU.
PTX_ARCHITECTURE = "compute_80"
FLAGS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", "-lineinfo", f"-arch={PTX_ARCHITECTURE}")


def kernel_ptx(config: FlashForwardKernelConfig) -> str:
    """PTX with source lines; its entry is `config.kernel_name()`. Compiled once and kept in the
    cache directory under a fingerprint of sources, flags and compiler.

    Raises BuildError if there is no nvcc, ValueError if the configuration cannot be built,
    RuntimeError with nvcc's message if it does not compile.
    """
    text = render_translation_unit([config])
    nvcc = _nvcc()
    key = hashlib.sha256(
        "\0".join((source_fingerprint(text), nvcc.version, *FLAGS)).encode()
    ).hexdigest()
    path = cache_dir("ptx") / f"{config.kernel_name()}-{key[:16]}.ptx"
    try:
        return path.read_text()
    except FileNotFoundError:
        return _compile(text, nvcc, path)


@cache
def _nvcc() -> Nvcc:
    return find_or_install_nvcc()


def _compile(text: str, nvcc: Nvcc, path: Path) -> str:
    """Compiles in a directory of its own and publishes by rename, so that concurrent callers and
    interruptions leave either nothing or the whole file."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ptx-") as folder:
        source, output = Path(folder, "kernel.cu"), Path(folder, "kernel.ptx")
        source.write_text(text)
        command = [
            str(nvcc.path), *FLAGS, "-ptx", *(f"-I{folder}" for folder in include_dirs()),
            str(source), "-o", str(output),
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **nvcc.env}
        )
        if done.returncode != 0:
            raise RuntimeError(f"nvcc failed ({done.returncode}) on {path.stem}:\n{done.stderr}")
        ptx = output.read_text()
        output.replace(path)
    return ptx
