"""CPU tensors: the same kernels in the emulator (triton_kit/emulated.py)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from ..triton_kit.emulated import run
from .config import GluonForwardConfig
from .op import GluonAttention

if TYPE_CHECKING:
    from flash_helpers.emulator import LaunchOptions


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, ping_pong: bool, causal: bool = False,
    softmax_scale: float | None = None, config: GluonForwardConfig | None = None,
    out: torch.Tensor | None = None, options: LaunchOptions | None = None,
) -> torch.Tensor:  # fmt: skip
    """flash_attention.gluon.forward for tensors on the CPU. `options`: how the emulator runs it,
    without effect on the result. Raises as that does, and the emulator's KernelError."""
    op = GluonAttention(ping_pong)
    emulate = partial(run, op, options=options)
    return op.forward(q, k, v, out, causal, softmax_scale, config, emulate)
