"""Operators in Triton, from the sum of two vectors upwards.

    from flash_attention import operators
    y = operators.gelu(x)          # CUDA tensors: on the GPU; CPU tensors: in the emulator

docs/operators.md lists them. torch.compile keeps each as one node (torch.ops.flash_attention), and
`python -m flash_attention.operators NAME` runs one. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .convolution.calls import conv2d
    from .elementwise.calls import add, add_scalar, gelu, relu, silu
    from .losses.calls import cross_entropy
    from .matrices.calls import matmul, matmul_best_config
    from .moments.calls import mean_var
    from .norms.calls import layer_norm, rms_norm
    from .row_softmax.calls import log_softmax, softmax

_HOMES = {
    "convolution.calls": ("conv2d",),
    "losses.calls": ("cross_entropy",),
    "elementwise.calls": ("add", "add_scalar", "gelu", "relu", "silu"),
    "matrices.calls": ("matmul", "matmul_best_config"),
    "moments.calls": ("mean_var",),
    "norms.calls": ("layer_norm", "rms_norm"),
    "row_softmax.calls": ("log_softmax", "softmax"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "add", "add_scalar", "conv2d", "cross_entropy", "gelu", "layer_norm", "log_softmax", "matmul",
    "matmul_best_config", "mean_var", "relu", "rms_norm", "silu", "softmax",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Kept, as to come here again would take a microsecond or two of every call.
    found = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    return globals().setdefault(name, found)


def __dir__() -> list[str]:
    return sorted(__all__)
