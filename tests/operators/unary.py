"""Elementwise operators of one tensor, each with the same in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from flash_attention import operators

Unary = Callable[..., torch.Tensor]
UNARY: dict[str, tuple[Unary, Unary]] = {
    "add_scalar": (lambda x, **k: operators.add_scalar(x, -0.3, **k), lambda x: x + -0.3),
    "relu": (operators.relu, torch.relu),
    "silu": (operators.silu, F.silu),
    "gelu": (operators.gelu, F.gelu),
    "gelu_tanh": (
        lambda x, **k: operators.gelu(x, "tanh", **k),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
}
