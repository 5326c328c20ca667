"""Attention for sequences of different lengths, and with caches of keys and values."""

from .kvcache import flash_attn_with_kvcache
from .mla import flash_mla_with_kvcache
from .varlen import flash_attn_varlen_func

__all__ = ["flash_attn_varlen_func", "flash_attn_with_kvcache", "flash_mla_with_kvcache"]
