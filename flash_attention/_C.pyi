# The compiled module (csrc/bindings/module.cpp).
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

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
def load_kernels(
    family: str, name: str, config: bytes, kernels: list[tuple[str, str, bytes]]
) -> int: ...
def forward_args_size() -> int: ...
def launch(kernel_id: int, args: bytes, device: int, stream: int) -> None: ...
def backward_args_size() -> int: ...
def launch_backward(kernel_id: int, args: bytes, device: int, stream: int) -> None: ...
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

class BackwardLaunchCache:
    # Twelve tensors, or None, in the order of the argument record, are arguments by themselves.
    def __init__(self, tensor_type: type, exchange_api: object) -> None: ...
    def again(self, config: object, *call: object) -> bool: ...
    def remember(self, config: object, *call: object) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...

class Surroundings:
    def __init__(
        self,
        quiet: Sequence[Callable[[], object]],
        settings: Sequence[tuple[dict[str, object], str, object]],
        is_grad_enabled: Callable[[], bool],
        is_negated: Callable[[object], bool],
    ) -> None: ...
    def is_quiet(self) -> bool: ...

class NewTensors:
    def __init__(
        self,
        empty_like: Callable[[object], object],
        new_empty: Callable[..., object],
        empty_strided: Callable[..., object] | None,
        description_of: Callable[[object], tuple[object, ...]],
        current_device: Callable[[], int] | None,
    ) -> None: ...

class PlainCalls:
    def __init__(
        self,
        cache: LaunchCache,
        around: Surroundings,
        new_tensors: NewTensors,
        plain: object,
        recorded: object,
        recorded_deterministic: object,
        are_deterministic: Callable[[], bool],
        lse_prototype: Callable[..., object],
        record: Callable[..., object],
    ) -> None: ...
    # Functions of positional arguments.
    @property
    def attend(self) -> Callable[..., object]: ...
    @property
    def compute(self) -> Callable[..., object]: ...

class SdpaCalls:
    def __init__(
        self,
        cache: LaunchCache,
        around: Surroundings,
        new_tensors: NewTensors,
        plain: object,
        recorded: object,
        recorded_deterministic: object,
        are_deterministic: Callable[[], bool],
        lse_prototype: Callable[..., object],
        record: Callable[..., object],
        backend_of: Callable[..., object],
        flash: object,
        serve: Callable[..., object],
    ) -> None: ...
    # With the parameters of PyTorch's function.
    @property
    def attend(self) -> Callable[..., object]: ...

class Detour:
    def __init__(self, function: object, first: Callable[..., object]) -> None: ...
    def end(self) -> None: ...

class ServingCalls:
    def __init__(
        self,
        tensor_type: type,
        exchange_api: object,
        around: Surroundings,
        new_tensors: NewTensors,
        float32: object,
        most_rows: int,
        many_heads: int,
        pair_heads: int,
        few_heads: int,
        cut_heads: int,
        few_keys: int,
    ) -> None: ...
    # A function of positional arguments: those of csrc/bindings/serving_query.h.
    @property
    def attend(self) -> Callable[..., object]: ...
    def remember(
        self,
        given: tuple[object, ...],
        kernel_id: int,
        args: bytes,
        scratch: tuple[object, ...],
        keeps_scratch: bool,
        by_sizes: bool,
    ) -> None: ...
    def __len__(self) -> int: ...

class PlainGradients:
    def __init__(
        self,
        cache: BackwardLaunchCache,
        around: Surroundings,
        new_tensors: NewTensors,
        choose: Callable[..., object],
        row_stats_prototype: Callable[..., object],
        d_q_sums_prototype: Callable[..., object],
    ) -> None: ...
    @property
    def attend(self) -> Callable[..., object]: ...
    @property
    def attend_heads_first(self) -> Callable[..., object]: ...
    @property
    def compute(self) -> Callable[..., object]: ...

class RecordedFunction:
    def __init__(
        self, gradients: Callable[..., object], otherwise: Callable[..., object]
    ) -> None: ...
    @property
    def forward(self) -> Callable[..., object]: ...
    @property
    def apply(self) -> Callable[..., object]: ...

class RepeatedLaunches:
    def __init__(
        self,
        launch_kernel: int,
        replace_address: int,
        exchange_api: object,
        hooks: Sequence[tuple[object, str]],
        current_device: Callable[[], int],
        stream_of: Callable[[int], int],
        empty: Callable[..., object],
        device: int,
        needed: Sequence[tuple[int, int]],
        apart: Sequence[tuple[int, int]],
        made: Sequence[tuple[object, object, object]],
        scratch: Sequence[int],
        steps: Sequence[tuple[object, ...]],
        result: Sequence[int],
        single: bool,
    ) -> None: ...
    # (tensors, addresses) -> the result, or None where nothing was launched.
    @property
    def again(self) -> Callable[[list[Any], list[int]], Any]: ...

class RememberedCalls:
    def __init__(
        self,
        quiet: Sequence[object],
        levels: object,
        is_grad_enabled: Callable[[], bool],
        tensors: Sequence[type],
        others: Sequence[type],
        exchange_api: object,
    ) -> None: ...
    # (positional, named arguments) -> the result, or None where nothing was launched.
    @property
    def again(self) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]: ...
    def remember(
        self,
        given: tuple[object, ...],
        named: dict[str, object],
        like: Callable[..., bool],
        launches: Callable[..., object],
    ) -> None: ...
    def __len__(self) -> int: ...
