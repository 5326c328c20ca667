"""Convolutions in fp64, and how far another one may be off."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .compare import excess
from .matrices import FUNCTIONS

# Name: (images, channels, height, width), (filters, channels of a group, height, width), how.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": ((2, 16, 9, 7), (24, 16, 3, 3), {"padding": 1}),
    "point": ((1, 3, 5, 5), (2, 3, 1, 1), {}),
    "strided": ((1, 40, 13, 8), (9, 40, 5, 3), {"stride": (2, 1), "padding": (2, 1)}),
    "dilated": ((2, 7, 12, 11), (33, 7, 3, 2), {"dilation": (1, 3), "padding": (0, 2)}),
    "grouped": ((1, 24, 6, 6), (12, 8, 3, 3), {"groups": 3, "padding": 2, "stride": 2}),
    "depthwise": ((1, 20, 7, 6), (20, 1, 7, 7), {"groups": 20, "padding": 3}),
}
Optional = torch.Tensor | None


def off(
    y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: Optional = None,
    activation: str = "none", **how: Any,
) -> float:  # fmt: skip
    """In units of fp32 at the sum of the magnitudes of all that is added."""
    conv: Any = F.conv2d
    wide = [None if t is None else t.double() for t in (x, weight, bias)]
    exact = FUNCTIONS[activation](conv(*wide, **how))
    scale = conv(*(None if t is None else t.abs() for t in wide), **how)
    return excess(y, exact, scale)
