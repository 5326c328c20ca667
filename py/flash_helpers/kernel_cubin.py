"""One configuration's kernel as a cubin: what it is on a GPU, without building the extension."""

from __future__ import annotations

from pathlib import Path

from .kernel_config import KernelConfig
from .kernel_ptx import COMMON_FLAGS, compiled_kernel

DEFAULT_ARCHITECTURE = "sm_90a"


def kernel_cubin(
    config: KernelConfig, architecture: str = DEFAULT_ARCHITECTURE, general: bool = False
) -> Path:
    """The file, compiled on first use and kept in the cache directory like `kernel_ptx`'s; raises
    what that raises."""
    flags = (*COMMON_FLAGS, f"-arch={architecture}")
    return compiled_kernel(config, flags, f"{architecture}.cubin", "-cubin", general)
