"""One configuration's kernel as nvcc compiles it, without building the extension: its PTX, which
the emulator runs, and its cubin."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..base.cache import (
    build_once,
    cache_dir,
    is_intact,
    publish_bytes,
    publish_text,
    read_intact_text,
)
from ..codegen import render_kernel, source_fingerprint
from ..codegen.sources import include_dirs
from ..compilers.nvcc_wheels import find_or_install_nvcc
from ..compilers.toolchain import Nvcc
from ..compilers.usable_paths import NVCC_REFUSED, NVCC_TEMPORARY_REFUSED, check_path, nvcc_folder
from ..kernels.contract import KernelConfig, Variant

_find_nvcc = cache(find_or_install_nvcc)
DEFAULT_ARCHITECTURE = "sm_90a"
COMMON_FLAGS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", "-lineinfo")


def kernel_ptx(config: KernelConfig, variant: Variant | None = None) -> str:
    """PTX with source lines of one of the configuration's kernels (by default the first); its entry
    is `config.symbol(variant)`. Compiled once and kept in the cache directory under a fingerprint
    of sources, flags and compiler; again if it is damaged.

    Raises BuildError if there is no nvcc, ValueError if the configuration cannot be built,
    RuntimeError with nvcc's message if it does not compile, UnsafeCacheError and OSError if the
    cache cannot be used.
    """
    return _ptx(cached_kernel(config, flags_for(config.PTX_ARCHITECTURE), "ptx", variant))


def kernel_cubin(
    config: KernelConfig, architecture: str = DEFAULT_ARCHITECTURE, variant: Variant | None = None
) -> Path:
    """The file of one of the configuration's kernels (by default the first), what it is on a GPU:
    compiled on first use and kept like `kernel_ptx`'s; raises what that raises. After the cubin
    comes a checksum, which the CUDA tools ignore."""
    kernel = cached_kernel(config, flags_for(architecture), f"{architecture}.cubin", variant)

    def built() -> Path:
        publish_bytes(kernel.compile("-cubin"), kernel.path)
        return kernel.path

    return build_once(kernel.path, lambda: kernel.path if is_intact(kernel.path) else None, built)


def source_ptx(text: str, name: str, architecture: str, include: Path | None = None) -> str:
    """The same of any translation unit. `name` is for messages and the cache; `include`: where its
    headers lie, if they are not ours."""
    return _ptx(_cached(text, name, flags_for(architecture), "ptx", include))


def flags_for(architecture: str) -> tuple[str, ...]:
    """nvcc's, for an -arch such as "compute_80"."""
    return (*COMMON_FLAGS, f"-arch={architecture}")


def _ptx(kernel: CachedKernel) -> str:
    def built() -> str:
        ptx = kernel.compile("-ptx").decode()
        publish_text(ptx, kernel.path)
        return ptx

    return build_once(kernel.path, lambda: read_intact_text(kernel.path), built)


@dataclass(frozen=True)
class CachedKernel:
    """A kernel's source, and where in the cache what nvcc makes of it has its place."""

    source: str
    nvcc: Nvcc
    flags: tuple[str, ...]
    path: Path
    include: Path | None = None  # where its headers lie, if they are not ours

    def compile(self, stage: str) -> bytes:
        """What nvcc's `stage` (-ptx, -cubin) leaves. Raises RuntimeError with its message."""
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".ptx-") as folder:
            source, output = Path(folder, "kernel.cu"), Path(folder, "kernel.out")
            source.write_text(self.source)
            arguments = [*self.flags, stage, str(source), "-o", str(output)]
            run_nvcc(self.nvcc, arguments, self.path.stem, self.include)
            return output.read_bytes()


def cached_kernel(
    config: KernelConfig, flags: Sequence[str], suffix: str, variant: Variant | None = None
) -> CachedKernel:
    """Raises BuildError, ValueError, UnsafeCacheError and OSError as kernel_ptx() does."""
    variant = variant or config.first_variant()
    return _cached(render_kernel(config, variant), config.symbol(variant), flags, suffix)


def _cached(
    text: str, name: str, flags: Sequence[str], suffix: str, include: Path | None = None
) -> CachedKernel:
    nvcc = _find_nvcc()
    fingerprint = source_fingerprint(text, include)
    key = hashlib.sha256("\0".join((fingerprint, nvcc.version, *flags)).encode()).hexdigest()
    path = cache_dir("ptx") / f"{name}-{key[:16]}.{suffix}"
    return CachedKernel(text, nvcc, tuple(flags), path, include)


def run_nvcc(nvcc: Nvcc, arguments: Sequence[str], name: str, include: Path | None = None) -> str:
    """Compiles `name` with our headers, or with those of `include` in their place; what nvcc
    printed. Raises RuntimeError with its message, BuildError for a path that it would misread."""
    folders: tuple[Path, ...] = (include,) if include else include_dirs()
    absolute = [word for word in arguments if word.startswith("/")]
    for path in (*map(str, folders), *absolute):
        check_path(f"a path that nvcc needs for {name}", path, NVCC_REFUSED)
    check_path("TMPDIR", os.environ.get("TMPDIR", ""), NVCC_TEMPORARY_REFUSED)
    done = subprocess.run(
        [str(nvcc.path), *(nvcc_folder("-I", folder) for folder in folders), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"nvcc failed ({done.returncode}) on {name}:\n{done.stderr}")
    return done.stdout + done.stderr
