"""The compiled kernels under the name that the benchmark tools know them by.

`import flash_attention_kernels` gives the functions of `flash_attention._C` and `forward`.
"""

from flash_attention import forward
from flash_attention._C import (
    CudaError,
    architectures,
    device_count,
    fingerprint,
    forward_args_size,
    kernel_attributes,
    kernel_names,
    kernel_set,
    launch,
)

__all__ = [
    "CudaError",
    "architectures",
    "device_count",
    "fingerprint",
    "forward",
    "forward_args_size",
    "kernel_attributes",
    "kernel_names",
    "kernel_set",
    "launch",
]
