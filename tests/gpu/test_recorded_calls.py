"""Calls of `forward` that PyTorch records or transforms, on the GPU: refused also where the same
call was checked and launched before, so that only the extension's cache is between it and the
kernel. Those of `flash_attn_func` are right (test_torch_op.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import flash_attention
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernel_configs import DType, KernelConfig
from tests.gpu.inputs import forward_kernels

pytestmark = pytest.mark.gpu

Call = Callable[[Tensor, Tensor, Tensor], Any]


@pytest.fixture
def config() -> KernelConfig:
    configs = [c for c in forward_kernels() if c.dtype is DType.FP16]
    if not configs:
        pytest.skip("this build has no fp16 kernels")
    return configs[0]


@pytest.fixture(params=["forward", "forward with an output"])
def call(request: pytest.FixtureRequest, config: KernelConfig) -> Call:
    def given_output(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        o = torch.empty(q.shape, dtype=q.dtype, device="cuda")
        return flash_attention.forward(config, q, k, v, o)

    calls: dict[str, Call] = {
        "forward": lambda q, k, v: flash_attention.forward(config, q, k, v),
        "forward with an output": given_output,
    }
    return calls[request.param]


@pytest.fixture
def tensors(call: Call, config: KernelConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Of a call that was made before, and is remembered."""
    m, n = config.blocks()
    shape = (2, 2 * max(m, n), 4, config.d_head)  # whole blocks: every kernel takes it
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    for _ in range(2):
        call(q, k, v)
    return q, k, v


def _traced(call: Call, q: Tensor, k: Tensor, v: Tensor) -> None:
    torch.jit.trace(call, (q, k, v), check_trace=False)  # type: ignore[no-untyped-call]


def _dual(call: Call, q: Tensor, k: Tensor, v: Tensor) -> None:
    make_dual: Any = forward_ad.make_dual
    with forward_ad.dual_level():
        call(q, make_dual(k, torch.randn_like(k)), v)


def _freed(call: Call, q: Tensor, k: Tensor, v: Tensor) -> None:
    gone = k.clone()
    gone.untyped_storage().resize_(0)
    call(q, gone, v)


def _zero(call: Call, q: Tensor, k: Tensor, v: Tensor) -> None:
    call(q, torch._efficientzerotensor(k.shape, dtype=k.dtype, device="cuda"), v)


# (what is done, the exception, what it says)
REFUSED: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "torch.jit.trace": (_traced, NotImplementedError, "torch.jit.trace cannot record"),
    "make_fx": (
        lambda call, *qkv: make_fx(call)(*qkv), NotImplementedError, "cannot record this call",
    ),
    "make_fx, pre-dispatch": (
        lambda call, *qkv: make_fx(call, pre_dispatch=True)(*qkv),
        NotImplementedError, "cannot record this call",
    ),
    "torch.func.vmap": (
        lambda call, *qkv: torch.func.vmap(call)(*(x[None] for x in qkv)),
        TypeError, "is inside torch.func.vmap",
    ),
    "torch.func.functionalize": (
        lambda call, *qkv: torch.func.functionalize(call)(*qkv),
        TypeError, "is inside torch.func.functionalize",
    ),
    "dual tensors": (_dual, ValueError, "k has a forward-mode derivative"),
    "freed memory": (_freed, ValueError, "k needs .* bytes of memory, and its storage has 0"),
    "a ZeroTensor": (_zero, ValueError, "k needs .* bytes of memory, and its storage has 0"),
}  # fmt: skip


@pytest.mark.parametrize("way", REFUSED)
def test_a_remembered_call_is_refused(
    call: Call, tensors: tuple[Tensor, Tensor, Tensor], way: str
) -> None:
    expected = call(*tensors).clone()
    provoke, exception, words = REFUSED[way]
    with pytest.raises(exception, match=words):
        provoke(call, *tensors)
    torch.cuda.synchronize()  # nothing was launched that breaks the device
    assert bitwise_equal(call(*tensors), expected)


def test_a_compiled_function_gives_the_same_results(
    call: Call, tensors: tuple[Tensor, Tensor, Tensor]
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: call(q + 0, k, v) * 1, backend="aot_eager")
    for _ in range(3):  # the first compiles, the others run what was compiled
        q, k, v = (torch.randn_like(x) for x in tensors)
        assert bitwise_equal(compiled(q, k, v), call(q, k, v))
