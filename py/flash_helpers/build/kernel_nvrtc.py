"""One kernel as NVRTC compiles it: machine code without nvcc and without a host compiler."""

from __future__ import annotations

from ..codegen import render_kernel
from ..codegen.sources import include_dirs
from ..compilers.nvrtc import Nvrtc
from ..kernels.contract import KernelConfig, Variant

# Functions of configurations are for the device too, as nvcc's --expt-relaxed-constexpr has it.
FLAGS = ("-std=c++20", "-default-device", "-lineinfo")


def nvrtc_cubin(
    nvrtc: Nvrtc, config: KernelConfig, architecture: str, variant: Variant | None = None
) -> bytes:
    """The cubin of one of the configuration's kernels (by default the first) for an architecture
    such as "sm_90a"; its entry is `config.symbol(variant)`.

    Raises ValueError if the configuration cannot be built, RuntimeError with NVRTC's message if it
    does not compile.
    """
    variant = variant or config.first_variant()
    return nvrtc.cubin(
        render_kernel(config, variant), f"{config.symbol(variant)}.cu", flags_for(architecture)
    )


def flags_for(architecture: str) -> tuple[str, ...]:
    return (*FLAGS, f"-arch={architecture}", *(f"-I{folder}" for folder in include_dirs()))
