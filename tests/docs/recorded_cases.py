"""What the rows about recorded and transformed calls in docs/support.md mean, as code, and the
functions that they are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import flash_attention
from flash_attention import gluon
from flash_attention import triton as plain
from flash_attention.gluon import emulated as gluon_emulated
from flash_attention.triton import emulated as plain_emulated

from .cases import CONFIG, SHAPE, draw

Call = Callable[[Tensor, Tensor, Tensor], Any]

LAUNCHES = (
    "flash_attention.emulated.launch",
    "flash_attention.triton_kit.emulated.launch",
)


def _with_output(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flash_attention.forward(CONFIG, q, k, v, torch.zeros(SHAPE, dtype=torch.float16))


# The functions whose launch PyTorch does not see, on (q, k, v); flash_attn_func has rows of its own
# (tests/torch_op).
CALLS: Mapping[str, Call] = {
    "forward": lambda q, k, v: flash_attention.forward(CONFIG, q, k, v),
    "forward with an output": _with_output,
    "forward_timed": lambda q, k, v: flash_attention.forward_timed(CONFIG, q, k, v)[0],
    "triton": lambda q, k, v: plain.forward(q, k, v),
    "triton, emulated": lambda q, k, v: plain_emulated.forward(q, k, v),
    "gluon": lambda q, k, v: gluon.forward(q, k, v, ping_pong=True),
    "gluon, emulated": lambda q, k, v: gluon_emulated.forward(q, k, v, ping_pong=True),
}


class Wrapper(torch.Tensor):
    """A tensor subclass that has its values in another tensor."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapper:
        make: Any = torch.Tensor._make_wrapper_subclass
        made: Wrapper = make(cls, inner.shape, dtype=inner.dtype)
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError("the refusal comes before any operation")


def traced(call: Call) -> Any:
    trace: Any = torch.jit.trace
    return trace(call, (draw(), draw(), draw()), check_trace=False)


def recorded(
    mode: Literal["real", "fake", "symbolic"], pre_dispatch: bool = False
) -> Callable[[Call], Any]:
    return lambda call: make_fx(call, tracing_mode=mode, pre_dispatch=pre_dispatch)(
        draw(), draw(), draw()
    )


def _exported(call: Call) -> Any:
    class Module(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
            return call(q, k, v)

    return torch.export.export(Module(), (draw(), draw(), draw()), strict=False)


def _under(mode: Callable[[], AbstractContextManager[Any]]) -> Callable[[Call], Any]:
    def provoke(call: Call) -> Any:
        tensors = draw(), draw(), draw()
        with mode():
            return call(*tensors)

    return provoke


def _fake(call: Call) -> Any:
    with FakeTensorMode() as mode:
        q, k, v = (mode.from_tensor(draw()) for _ in range(3))
    return call(q, k, v)


def _distributed(call: Call) -> Any:
    """Needs a process group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    mesh = init_device_mesh("cpu", (1,))
    q, k, v = (DTensor.from_local(draw(), mesh) for _ in range(3))
    return call(q, k, v)


def _dual(call: Call) -> Any:
    make_dual: Any = forward_ad.make_dual
    with forward_ad.dual_level():
        return call(draw(), make_dual(draw(), draw()), draw())


# By row, what is done with a call; each is refused in the same words.
RECORDED: Mapping[str, tuple[Callable[[Call], Any], ...]] = {
    "`torch.jit.trace`": (traced,),
    "`make_fx`, also symbolic, fake or pre-dispatch": (
        recorded("real"), recorded("real", pre_dispatch=True), recorded("fake"),
        recorded("symbolic"),
    ),
    "`torch.export`": (_exported,),
    "`torch.fx.symbolic_trace`": (
        lambda call: torch.fx.symbolic_trace(lambda q, k, v: call(q, k, v)),
    ),
    "inside `FakeTensorMode` or `FunctionalTensorMode`": (
        _under(FakeTensorMode), _under(FunctionalTensorMode),
    ),
    "fake tensors": (_fake,),
    "`DTensor`": (_distributed,),
    "any other subclass with `__torch_dispatch__`": (
        lambda call: call(Wrapper(draw()), draw(), draw()),
    ),
    "`torch.func.vmap`": (lambda call: torch.func.vmap(call)(*(draw()[None] for _ in range(3))),),
    "`torch.func.grad`, `vjp`, `jvp` and what is made of them": (
        lambda call: torch.func.grad(lambda q: call(q, draw(), draw()).sum())(draw()),
        lambda call: torch.func.vjp(call, draw(), draw(), draw()),
        lambda call: torch.func.jvp(call, (draw(), draw(), draw()), (draw(), draw(), draw())),
    ),
    "`torch.func.functionalize`": (
        lambda call: torch.func.functionalize(call)(draw(), draw(), draw()),
        lambda call: call(*(torch._to_functional_tensor(draw()) for _ in range(3))),
    ),
    "dual tensors of forward-mode differentiation": (_dual,),
}  # fmt: skip
