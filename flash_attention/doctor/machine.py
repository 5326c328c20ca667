"""Versions, compilers, GPU and driver."""

import os
import platform
from importlib import metadata
from pathlib import Path

import torch

from flash_helpers.build.architectures import present_gpus
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.nvrtc import Nvrtc, find_nvrtc
from flash_helpers.compilers.programs import ask, variable
from flash_helpers.compilers.toolchain import HostCompiler, Nvcc, find_host_compiler, find_nvcc

from ..triton_kit.versions import TritonVersionError, require_triton
from ..tuning import gpu_of
from .records import Check

_TORCH = "install a build of PyTorch with CUDA that fits the driver (pytorch.org)"
_QUERY = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def checks() -> list[Check]:
    """A compiler that is missing is a fault only where a variable names it: a call may get its
    kernel otherwise, and the self-test sees whether it does. A Triton that is not taken may be the
    one that an older PyTorch needs; nothing but the kernels in Triton misses another."""
    no_nvcc, no_host = (
        () if variable(os.environ, name) else BuildError for name in ("CUDACXX", "CXX")
    )
    no_gpu = () if present_gpus() else LookupError
    return [
        Check("versions", "package", _package, absent=metadata.PackageNotFoundError),
        Check("versions", "imported from", lambda: str(Path(__file__).parents[1])),
        Check("versions", "Python", platform.python_version),
        Check("versions", "torch", lambda: f"{torch.__version__}, CUDA {torch.version.cuda}"),
        Check("versions", "triton", require_triton, absent=TritonVersionError),
        Check("compilers", "nvcc", lambda: _named(find_nvcc()), "correct CUDACXX", no_nvcc),
        Check("compilers", "C++", lambda: _named(find_host_compiler()), "correct CXX", no_host),
        Check("compilers", "nvrtc", lambda: _named(find_nvrtc()), absent=BuildError),
        Check("GPU", "device", _gpu, f"look at CUDA_VISIBLE_DEVICES, or {_TORCH}", no_gpu),
        Check("GPU", "driver", lambda: ", ".join(set(ask(_QUERY).split())), absent=BuildError),
    ]


def _package() -> str:
    return metadata.version("flash-attention-from-scratch")


def _named(found: Nvcc | HostCompiler | Nvrtc) -> str:
    return f"{found.version}, {found.path}"


def _gpu() -> str:
    if not torch.cuda.is_available():
        raise LookupError("torch sees none: calls on CPU tensors run in the emulator")
    name, capability = gpu_of(None)
    return f"{name}, compute capability {capability}; {torch.cuda.device_count()} visible"
