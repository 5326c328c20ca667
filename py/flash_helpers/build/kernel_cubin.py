"""One configuration's kernel as a cubin: what it is on a GPU, without building the extension."""

from __future__ import annotations

from pathlib import Path

from ..base.cache import build_once, is_intact, publish_bytes
from ..kernels.contract import KernelConfig, Variant
from .kernel_ptx import cached_kernel, flags_for

DEFAULT_ARCHITECTURE = "sm_90a"


def kernel_cubin(
    config: KernelConfig,
    architecture: str = DEFAULT_ARCHITECTURE,
    variant: Variant | None = None,
) -> Path:
    """The file of one of its kernels (by default the first), compiled on first use and kept in the
    cache directory like `kernel_ptx`'s; raises what that raises. After the cubin comes a checksum,
    which the CUDA tools ignore."""
    kernel = cached_kernel(config, flags_for(architecture), f"{architecture}.cubin", variant)

    def built() -> Path:
        publish_bytes(kernel.compile("-cubin"), kernel.path)
        return kernel.path

    return build_once(kernel.path, lambda: kernel.path if is_intact(kernel.path) else None, built)
