"""One kernel as NVRTC compiles it: machine code without nvcc and without a host compiler."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from ..base.cache import (
    UnsafeCacheError,
    build_once,
    cache_dir,
    publish_bytes,
    read_intact_bytes,
)
from ..base.trusted_folders import find_untrusted
from ..codegen import render_kernel, source_fingerprint
from ..codegen.sources import include_dirs
from ..compilers.nvrtc import Nvrtc
from ..kernels.contract import KernelConfig, Variant

# Functions of configurations are for the device too, as nvcc's --expt-relaxed-constexpr has it.
FLAGS = ("-std=c++20", "-default-device", "-lineinfo")
CACHE_FOLDER = "jit"


def nvrtc_cubin(
    nvrtc: Nvrtc, config: KernelConfig, architecture: str, variant: Variant | None = None
) -> bytes:
    """The cubin of one of the configuration's kernels (by default the first) for an architecture
    such as "sm_90a"; its entry is `config.symbol(variant)`.

    Raises ValueError if the configuration cannot be built, RuntimeError with NVRTC's message if it
    does not compile.
    """
    variant = variant or config.first_variant()
    return _compiled(
        nvrtc, render_kernel(config, variant), config.symbol(variant), _flags(architecture)
    )


def cached_nvrtc_cubin(
    nvrtc: Nvrtc,
    config: KernelConfig,
    architecture: str,
    variant: Variant,
    announce: Callable[[Path], object] = lambda path: None,
) -> bytes:
    """`nvrtc_cubin`, compiled once and kept in the cache under a fingerprint of sources, flags and
    compiler, by one process while others wait; again if it is damaged. `announce` hears of a
    compilation before it begins.

    Raises what `nvrtc_cubin` does, UnsafeCacheError for a file that somebody else could have
    written, CacheLockTimeout and OSError.
    """
    text, symbol, flags = (
        render_kernel(config, variant),
        config.symbol(variant),
        _flags(architecture),
    )
    identity = (source_fingerprint(text), nvrtc.identity, *flags)
    key = hashlib.sha256("\0".join(identity).encode()).hexdigest()
    path = cache_dir(CACHE_FOLDER) / f"{symbol}-{key[:16]}.{architecture}.cubin"

    def built() -> bytes:
        announce(path)
        cubin = _compiled(nvrtc, text, symbol, flags)
        publish_bytes(cubin, path)
        return cubin

    return build_once(path, lambda: _read(path), built)


def _read(path: Path) -> bytes | None:
    """What runs on the GPU next: nobody else may have written it."""
    if os.path.lexists(path) and find_untrusted(path) is not None:
        raise UnsafeCacheError(
            f"{path} is a link, or belongs to somebody else, or can be written by others: it is "
            "not loaded; delete it"
        )
    return read_intact_bytes(path)


def _flags(architecture: str) -> tuple[str, ...]:
    return (*FLAGS, f"-arch={architecture}")


def _compiled(nvrtc: Nvrtc, text: str, symbol: str, flags: tuple[str, ...]) -> bytes:
    folders = (f"-I{folder}" for folder in include_dirs())
    return nvrtc.cubin(text, f"{symbol}.cu", (*flags, *folders))
