"""Products of matrices in fp64, and how far another one may be off."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .compare import excess

Optional = torch.Tensor | None
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda z: z,
    "relu": torch.relu,
    "silu": F.silu,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
}
# In units of fp32 at the sum of the products' magnitudes; tf32 has 10 bits of fraction.
ALLOWED = {"ieee": 4.0, "tf32x3": 8.0, "tf32": 2.0**14}
# The tensor cores of a GPU cut where fp32 would round, once for every few products.
CUT = 16


def exact(
    a: torch.Tensor, b: torch.Tensor, bias: Optional = None, activation: str = "none",
    residual: Optional = None,
) -> torch.Tensor:  # fmt: skip
    z = a.double() @ b.double()
    if bias is not None:
        z = z + bias.double()
    z = FUNCTIONS[activation](z)
    return z if residual is None else z + residual.double()


def off(
    y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: Optional = None,
    activation: str = "none", residual: Optional = None,
) -> float:  # fmt: skip
    """In units of fp32 at the sum of the magnitudes of all that is added."""
    scale = a.double().abs() @ b.double().abs()
    for more in (bias, residual):
        if more is not None:
            scale = scale + more.double().abs()
    return excess(y, exact(a, b, bias, activation, residual), scale)
