"""Kernels that the loaded build lacks: compiled by NVRTC when they are first wanted, and launched
like those of the build."""

import os
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

from flash_helpers.build.architectures import for_gpu
from flash_helpers.build.kernel_nvrtc import cached_nvrtc_cubin
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.nvrtc import Nvrtc, find_nvrtc
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.registry import violations

from .library import load_library

VARIABLE = "FLASH_ATTENTION_JIT"  # 0: what the build lacks is refused

# One thread compiles and adds a kernel; others that want it find it then.
_lock = threading.Lock()
_loaded: dict[tuple[KernelConfig, tuple[Variant, ...], str], int] = {}


def refusal(environ: Mapping[str, str] = os.environ) -> str:
    """Why nothing is compiled here, in words that follow a kernel's name; empty: it is."""
    setting = environ.get(VARIABLE, "1")
    if setting not in ("0", "1"):
        raise ValueError(f"{VARIABLE}={setting!r}: expected 0 or 1")
    if setting == "0":
        return f"is not compiled now, since {VARIABLE}=0"
    if not torch.cuda.is_available():
        return "is not compiled now, since there is no CUDA device"
    try:
        _nvrtc()
    except BuildError as error:
        return f"cannot be compiled now: {error}"
    return ""


def is_on() -> bool:
    """Whether every configuration's kernels can be had on the GPUs here, as if all were built."""
    return not refusal()


def kernel_id(config: KernelConfig, variant: Variant, device: int) -> int:
    """The id of a configuration that was not built, with this kernel of it; of one whose kernels
    a call launches together, with all. Compiled for the device, or taken from the cache, the first
    time.

    Raises ValueError if the configuration has no such kernel on this device, RuntimeError with
    NVRTC's message, flash_attention._C.CudaError if CUDA does not take the code, UnsafeCacheError,
    CacheLockTimeout and OSError where the cache cannot be used.
    """
    capability = torch.cuda.get_device_capability(device)
    wanted = config.built_variants() if config.GRADIENTS or config.SERVES else (variant,)
    reasons = violations(config, capability)
    if not set(wanted) <= set(config.built_variants()):
        reasons.append("it takes lengths that are multiples of its blocks alone, without causal.")
    if reasons:
        raise ValueError(f"{config} has no such kernel for device {device}: {' '.join(reasons)}")
    key = (config, wanted, str(for_gpu(capability)))
    with _lock:
        if key not in _loaded:
            _loaded[key] = _load(*key)
        return _loaded[key]


def _load(config: KernelConfig, variants: tuple[Variant, ...], architecture: str) -> int:
    kernels = [
        (
            variant.value,
            config.symbol(variant),
            cached_nvrtc_cubin(_nvrtc(), config, architecture, variant, _announce),
        )
        for variant in variants
    ]
    loaded: int = load_library().load_kernels(
        config.FAMILY, config.kernel_name(), config.to_cpp_bytes(), kernels
    )
    return loaded


def forget() -> None:
    """As in a new process: the compiler is looked for again, and kernels are loaded again."""
    with _lock:
        _loaded.clear()
        _nvrtc.cache_clear()
        _say_once.cache_clear()


@cache
def _nvrtc() -> Nvrtc:
    return find_nvrtc()


def _announce(path: Path) -> None:
    _say_once(path.parent)


@cache
def _say_once(folder: Path) -> None:
    """Who waits for seconds shall know for what; once in a process."""
    print(
        f"flash_attention: compiling kernels that this build lacks with NVRTC {_nvrtc().version}, "
        f"a second or two for each; they are kept in {folder}",
        file=sys.stderr,
        flush=True,
    )
