"""The ways in which PyTorch records, transforms and watches a call of `flash_attn_func`, by the
names that they have in docs/support.md. Tensors are on any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import flash_attention

Qkv = tuple[Tensor, Tensor, Tensor]
Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Its gradients have the same bits in every run."""
    o = flash_attention.flash_attn_func(q, k, v, causal=True, deterministic=True)
    assert isinstance(o, Tensor)
    return o


class Model(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v)


def traced(*qkv: Tensor) -> Tensor:
    """With other lengths than the call has."""
    trace: Any = torch.jit.trace
    found: Tensor = trace(attend, tuple(x[:, :-8] for x in qkv), check_trace=False)(*qkv)
    return found


def recorded(mode: Literal["real", "fake", "symbolic"], pre_dispatch: bool) -> Way:
    def way(*qkv: Tensor) -> Tensor:
        graph: Any = make_fx(attend, tracing_mode=mode, pre_dispatch=pre_dispatch)
        with torch.no_grad():
            found: Tensor = graph(*qkv)(*qkv)
        return found

    return way


def exported(strict: bool) -> Way:
    """With a length that is dynamic."""

    def way(*qkv: Tensor) -> Tensor:
        length = torch.export.Dim("length", min=2, max=4096)
        shorter = tuple(x[:, :-8].clone() for x in qkv)
        shapes = tuple({1: length} for _ in qkv)
        program = torch.export.export(Model(), shorter, dynamic_shapes=shapes, strict=strict)
        found: Tensor = program.module()(*qkv)
        return found

    return way


def compiled(backend: str) -> Way:
    def way(*qkv: Tensor) -> Tensor:
        torch._dynamo.reset()
        found: Tensor = torch.compile(Model(), backend=backend, fullgraph=True)(*qkv)
        return found

    return way


def vmapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Over the batch, and over the heads of q for one KV head at a time."""
    n_heads, n_kv = q.shape[2], k.shape[2]
    each = torch.func.vmap(lambda *one: attend(*(x[None] for x in one))[0])
    grouped = q.view(*q.shape[:2], n_kv, n_heads // n_kv, q.shape[3])
    groups = torch.func.vmap(
        lambda a, b, c: attend(a, b[:, :, None], c[:, :, None]), in_dims=2, out_dims=2
    )
    assert torch.equal(each(q, k, v), groups(grouped, k, v).flatten(2, 3))
    found: Tensor = each(q, k, v)
    return found


def _functionalized(*qkv: Tensor) -> Tensor:
    found: Tensor = torch.func.functionalize(attend)(*qkv)
    with FunctionalTensorMode():
        assert torch.equal(attend(*qkv), found)
    return found


def _fake(*qkv: Tensor) -> Tensor:
    """Shape, strides and dtype; the values are those of the call."""
    found = attend(*qkv)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) for x in qkv]
        inside = attend(*fake)
    for o in (inside, attend(*fake)):
        assert (o.shape, o.stride(), o.dtype, o.device) == (
            found.shape, found.stride(), found.dtype, found.device,
        )  # fmt: skip
    return found


def _counted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with FlopCounterMode(display=False) as counter:
        found = attend(q, k, v)
    batch, seqlen_q, n_heads, d_head = q.shape
    pairs = batch * n_heads * seqlen_q * k.shape[1]
    assert counter.get_total_flops() == 2 * pairs * (d_head + v.shape[3])
    return found


def _autocast(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.autocast(q.device.type, dtype=q.dtype):
        found = attend(q.float(), k, v.float())
        recorded_too: Any = compiled("aot_eager")(q.float(), k, v.float())
    assert torch.equal(found, recorded_too)
    return found


def _inference(*qkv: Tensor) -> Tensor:
    with torch.inference_mode():
        return attend(*qkv).clone()


# Each gives what the call gives, to the bit.
RIGHT: Mapping[str, tuple[Way, ...]] = {
    "`torch.compile`, also with `fullgraph=True`": (compiled("eager"), compiled("aot_eager")),
    "`torch.export`, also `strict`, with dynamic lengths": (exported(False), exported(True)),
    "`torch.jit.trace`": (traced,),
    "`make_fx`, also symbolic, fake or pre-dispatch": tuple(
        recorded(mode, pre_dispatch)
        for mode in ("real", "fake", "symbolic")
        for pre_dispatch in (False, True)
    ),
    "fake tensors": (_fake,),
    "`FlopCounterMode`: as PyTorch's own attention, whatever the mask": (_counted,),
    "`torch.func.vmap`: folded into the batch": (vmapped,),
    "`torch.func.functionalize`, `FunctionalTensorMode`": (_functionalized,),
    "`torch.autocast`": (_autocast,),
    "`torch.inference_mode`": (_inference,),
}


def _loss(o: Tensor) -> Tensor:
    return o.float().square().sum()


def _backward(way: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Qkv]:
    def gradients(*qkv: Tensor) -> Qkv:
        leaves = [x.detach().requires_grad_() for x in qkv]
        torch.autograd.backward(_loss(way(*leaves)))
        d_q, d_k, d_v = (x.grad for x in leaves)
        assert d_q is not None and d_k is not None and d_v is not None
        return d_q, d_k, d_v

    return gradients


def _checkpointed(reentrant: bool) -> Way:
    def way(*qkv: Tensor) -> Tensor:
        found: Tensor = checkpoint(attend, *qkv, use_reentrant=reentrant)
        return found

    return way


def _function_of_all(transform: Any) -> Callable[..., Qkv]:
    return lambda *qkv: transform(lambda *x: _loss(attend(*x)), argnums=(0, 1, 2))(*qkv)


def _vjp(*qkv: Tensor) -> Qkv:
    vjp: Any = torch.func.vjp
    o, pull = vjp(attend, *qkv)
    found: Qkv = pull(2 * o)
    return found


def _per_sample(*qkv: Tensor) -> Qkv:
    """vmap over grad."""
    one = torch.func.grad(lambda *x: _loss(attend(*(y[None] for y in x))), argnums=(0, 1, 2))
    found: Qkv = torch.func.vmap(one)(*qkv)
    return found


def _counted_backward(q: Tensor, k: Tensor, v: Tensor) -> Qkv:
    with FlopCounterMode(display=False) as counter:
        found = eager_gradients(q, k, v)
    batch, seqlen_q, n_heads, d_head = q.shape
    pairs = batch * n_heads * seqlen_q * k.shape[1]
    assert counter.get_total_flops() == 2 * pairs * (4 * d_head + 3 * v.shape[3])
    return found


eager_gradients = _backward(attend)

# Each gives the gradients of `_loss` that the call gives, to the bit.
RIGHT_GRADIENTS: Mapping[str, tuple[Callable[..., Qkv], ...]] = {
    "`torch.compile`, also with `fullgraph=True`": (_backward(compiled("aot_eager")),),
    "`torch.jit.trace`": (_backward(traced),),
    "`FlopCounterMode`: as PyTorch's own attention, whatever the mask": (_counted_backward,),
    "`torch.func.grad`, `vjp`, `jacrev`, also inside and around `vmap`": (
        _function_of_all(torch.func.grad), _vjp, _per_sample, _backward(vmapped),
    ),
    "`torch.utils.checkpoint`": (
        _backward(_checkpointed(True)), _backward(_checkpointed(False)),
    ),
}  # fmt: skip


def _dual(q: Tensor, k: Tensor, v: Tensor) -> Any:
    make_dual: Any = forward_ad.make_dual
    with forward_ad.dual_level():
        return attend(q, make_dual(k, k), v)


def _jvp(*qkv: Tensor) -> Any:
    return torch.func.jvp(attend, qkv, qkv)


def _hessian(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.func.hessian(lambda x: _loss(attend(x, k[:1], v[:1])))(q[:1, :1])


def _twice(q: Tensor, k: Tensor, v: Tensor) -> Any:
    def gradient(x: Tensor) -> Tensor:
        found: Tensor = _function_of_all(torch.func.grad)(x, k, v)[0]
        return found

    return _vjp_of_loss(gradient, q)


def _vjp_of_loss(function: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return torch.func.grad(lambda y: _loss(function(y)))(x)


def _nested(q: Tensor, k: Tensor, v: Tensor) -> Any:
    jagged: Any = [torch.nested.nested_tensor(list(x), layout=torch.jagged) for x in (q, k, v)]
    return attend(*jagged)


def _mixed(*qkv: Tensor) -> Any:
    with FakeTensorMode():
        return attend(*qkv)


def _traced_by_fx(*_: Tensor) -> Any:
    return torch.fx.symbolic_trace(attend)


# What is done with a call.
REFUSED: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "forward-mode derivatives: dual tensors, `torch.func.jvp`, `jacfwd`, `hessian`": (
        _dual, _jvp, _hessian,
    ),
    "gradients of gradients": (_twice,),
    "nested tensors": (_nested,),
    "tensors with data inside `FakeTensorMode`": (_mixed,),
    "`torch.fx.symbolic_trace`": (_traced_by_fx,),
}  # fmt: skip
