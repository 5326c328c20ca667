"""Attention in plain Triton, for any GPU.

from flash_attention import triton as attention
o = attention.forward(q, k, v, causal=True)
tuned = attention.best_config(q, k, v, causal=True)   # measured once, then cached
"""

from .config import TritonForwardConfig, configs
from .launch import best_config, forward

__all__ = ["TritonForwardConfig", "best_config", "configs", "forward"]
