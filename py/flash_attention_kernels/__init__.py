"""The compiled kernels under the name that the benchmark tools know them by.

`import flash_attention_kernels` gives `forward` and the functions of the loaded extension module:
`flash_attention._C`, or the build that FLASH_ATTENTION_LIBRARY names.
"""

from flash_attention import forward
from flash_attention.library import load_library

_library = load_library()

CudaError = _library.CudaError
architectures = _library.architectures
device_count = _library.device_count
fingerprint = _library.fingerprint
forward_args_size = _library.forward_args_size
kernel_attributes = _library.kernel_attributes
kernel_names = _library.kernel_names
kernel_set = _library.kernel_set
launch = _library.launch

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
