"""The kernel families."""

from __future__ import annotations

from .sm80_fwd.config import FlashForwardKernelConfig
from .sm90_fwd.config import HopperForwardKernelConfig

FAMILIES = (FlashForwardKernelConfig.FAMILY, HopperForwardKernelConfig.FAMILY)
