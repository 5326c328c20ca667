# The compiled module (csrc/bindings/module.cpp).
from typing import TypedDict

class CudaError(RuntimeError): ...

class KernelAttributes(TypedDict):
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    max_threads_per_block: int
    blocks_per_multiprocessor: int
    binary_version: int
    ptx_version: int

def kernel_names() -> list[str]: ...
def kernel_set() -> str: ...
def architectures() -> list[str]: ...
def fingerprint() -> str: ...
def variants(kernel_id: int) -> list[str]: ...
def forward_args_size() -> int: ...
def launch(kernel_id: int, args: bytes, device: int, stream: int) -> None: ...
def kernel_attributes(kernel_id: int, device: int, variant: str) -> KernelAttributes: ...
def device_count() -> int: ...

class LaunchCache:
    def __init__(self, tensor_type: type, exchange_api: object) -> None: ...
    def again(
        self,
        config: object,
        q: object,
        k: object,
        v: object,
        o: object,
        lse: object,
        softmax_scale: object,
        causal: object,
        grad_enabled: bool,
    ) -> bool: ...
    def remember(
        self,
        config: object,
        q: object,
        k: object,
        v: object,
        o: object,
        lse: object,
        softmax_scale: object,
        causal: object,
        kernel_id: int,
        args: bytes,
    ) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
