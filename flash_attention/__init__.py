"""FlashAttention kernels written from scratch.

    import flash_attention
    o = flash_attention.flash_attn_func(q, k, v, causal=True)   # (batch, seq, heads, d_head)
    o = flash_attention.forward(kernel_cfg, q, k, v)            # the kernel of your choice
    o, ms = flash_attention.forward_timed(kernel_cfg, q, k, v)

CUDA tensors run on the GPU, CPU tensors in the emulator, which executes the PTX of the same
kernels. docs/support.md says what is supported.
"""

import sys

from .version import __version__
from .without_torch import is_about_torch, refuse

__all__ = [
    "KernelNotBuiltError",
    "LibraryNotFoundError",
    "TuningTableError",
    "__version__",
    "available_kernels",
    "backward",
    "disable",
    "enable",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "flash_mla_with_kvcache",
    "forward",
    "forward_timed",
    "library_info",
    "tuned_config",
]

try:
    from .drop_in.sdpa import disable, enable
    from .front_door import flash_attn_func
    from .gradients import backward
    from .interface import KernelNotBuiltError, available_kernels, forward, forward_timed
    from .library import LibraryNotFoundError, library_info
    from .serving import (
        flash_attn_varlen_func,
        flash_attn_with_kvcache,
        flash_mla_with_kvcache,
    )
    from .torch_op.registration import register as _register_operations
    from .tuning import tuned_config
    from .tuning_table import TuningTableError

    _register_operations()
except ModuleNotFoundError as error:
    if not is_about_torch(error):
        raise
    refuse(sys.modules[__name__], __all__)
