"""FlashAttention kernels written from scratch.

    import flash_attention
    o = flash_attention.flash_attn_func(q, k, v, causal=True)   # (batch, seq, heads, d_head)
    o = flash_attention.forward(kernel_cfg, q, k, v)            # the kernel of your choice
    o, ms = flash_attention.forward_timed(kernel_cfg, q, k, v)

CUDA tensors run on the GPU, CPU tensors in the emulator, which executes the PTX of the same
kernels. docs/support.md says what is supported.
"""

try:
    from .drop_in.sdpa import disable, enable
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "flash_attention needs PyTorch 2.4 or newer, which it does not install, as the right build "
        "depends on the GPU's driver: pytorch.org says which, or `pip install torch`. Without it "
        "kernels can be built (python -m flash_helpers.build), not called",
        name="torch",
    ) from None
from .front_door import flash_attn_func
from .gradients import backward
from .interface import KernelNotBuiltError, available_kernels, forward, forward_timed
from .library import LibraryNotFoundError, library_info
from .serving import flash_attn_varlen_func, flash_attn_with_kvcache
from .torch_op.registration import register as _register_operations
from .tuning import tuned_config
from .tuning_table import TuningTableError
from .version import __version__

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
    "forward",
    "forward_timed",
    "library_info",
    "tuned_config",
]

_register_operations()
