"""`flash_attn_func` where PyTorch records: on CPU tensors, so its kernels run in the emulator."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import flash_attention
from flash_attention import autograd
from flash_attention.gradients import gradients_of
from flash_attention.plain_gradients import chosen
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.tolerance import bitwise_equal

flash_attn_func: Any = flash_attention.flash_attn_func  # whatever it returns
SHAPES = {"q": (1, 40, 4, 64), "k": (1, 70, 2, 64), "v": (1, 70, 2, 64)}


def draw(name: str = "q", seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + 10 * ord(name[0]))
    return torch.randn(SHAPES[name], generator=generator, dtype=torch.float16)


def leaves() -> list[torch.Tensor]:
    return [draw(name).requires_grad_() for name in SHAPES]


def check(
    found: tuple[torch.Tensor, ...], d_o: torch.Tensor, d_lse: torch.Tensor | None = None,
    causal: bool = True,
) -> None:  # fmt: skip
    q, k, v = map(draw, SHAPES)
    expected = attention_gradients(q, k, v, d_o, d_lse=d_lse, causal=causal)
    assert expected.problem_with(dict(zip(("d_q", "d_k", "d_v"), found, strict=True))) == ""


@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients_of_output_and_log_sum_exp(deterministic: bool) -> None:
    inputs = leaves()
    o, lse, _ = flash_attn_func(
        *inputs, causal=True, deterministic=deterministic, return_attn_probs=True
    )
    assert bitwise_equal(o.detach(), flash_attn_func(*map(draw, SHAPES), causal=True))
    d_o, d_lse = draw(seed=1), torch.randn(lse.shape)
    check(torch.autograd.grad(o, inputs, d_o, retain_graph=True), d_o)
    both = torch.autograd.grad((o, lse), inputs, (d_o, d_lse), retain_graph=True)
    check(both, d_o, d_lse)
    check(torch.autograd.grad(lse, inputs, d_lse), torch.zeros_like(d_o), d_lse)


@pytest.mark.parametrize("needed", [n for i in (1, 2) for n in itertools.combinations("qkv", i)])
def test_only_the_gradients_asked_for(
    needed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def watched(*args: Any) -> Any:
        asked.append(args[-1])
        return gradients_of(*args)

    monkeypatch.setattr(autograd, "gradients_of", watched)
    inputs = {name: draw(name).requires_grad_(name in needed) for name in SHAPES}
    flash_attn_func(*inputs.values()).sum().backward()
    assert asked == [needed]
    assert {name for name, x in inputs.items() if x.grad is not None} == set(needed)


def test_what_is_kept_is_inputs_output_and_log_sum_exp() -> None:
    kept: list[tuple[int, ...]] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept.append(tuple(x.shape))
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        flash_attn_func(*leaves())
    assert kept == [*SHAPES.values(), SHAPES["q"], (1, 4, 40)]


def test_nothing_is_recorded_where_nothing_is_asked_for() -> None:
    with torch.no_grad():
        assert flash_attn_func(*leaves()).grad_fn is None
    assert flash_attn_func(*map(draw, SHAPES)).grad_fn is None
    output = flash_attn_func(*leaves())
    dead = weakref.ref(output)
    del output
    gc.collect()
    assert dead() is None, "a graph that nobody holds is freed"


OUTER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "stride 0 in every dimension": lambda o: o.sum(),
    "transposed": lambda o: (o.transpose(1, 2).reshape(-1) * torch.arange(o.numel()) / 1e4).sum(),
    "every second element": lambda o: o[..., ::2].sum(),
    "one head": lambda o: o[:, :, 1].sum(),
}


@pytest.mark.parametrize("name", OUTER)
def test_outer_gradients_of_any_layout(name: str) -> None:
    inputs = leaves()
    o = flash_attn_func(*inputs, causal=True)
    (d_o,) = torch.autograd.grad(OUTER[name](leaf := o.detach().requires_grad_()), leaf)
    check(torch.autograd.grad(OUTER[name](o), inputs), d_o)


def test_inputs_that_kernels_cannot_read() -> None:
    """The copies are the library's business: gradients come for what was passed."""
    wide = torch.randn(1, 40, 4, 65, dtype=torch.float16)
    q = wide[..., 1:].detach().requires_grad_()
    k, v = (draw(name).requires_grad_() for name in "kv")
    assert q.stride(2) % 8
    found = torch.autograd.grad(flash_attn_func(q, k, v).sum(), (q, k, v))
    plain = q.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    expected = torch.autograd.grad(flash_attn_func(plain, k, v).sum(), (plain, k, v))
    assert all(bitwise_equal(a.contiguous(), b) for a, b in zip(found, expected, strict=True))


def test_checkpoint_and_autocast() -> None:
    def gradients(call: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        inputs = leaves()
        return torch.autograd.grad(call(*inputs).square().sum(), inputs)

    plain = gradients(flash_attn_func)
    again = gradients(lambda *x: checkpoint(flash_attn_func, *x, use_reentrant=False))

    def mixed(*x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return flash_attn_func(*x)

    for found in (again, gradients(mixed)):
        assert all(bitwise_equal(a, b) for a, b in zip(found, plain, strict=True))


@pytest.mark.parametrize("d_head", [192, 256])
@pytest.mark.parametrize("deterministic", [False, True])
def test_wide_heads(d_head: int, deterministic: bool) -> None:
    """By the kernels that every GPU has."""
    torch.manual_seed(0)
    sizes = (1, 40, 4, d_head), (1, 70, 2, d_head), (1, 70, 2, d_head)
    inputs = [torch.randn(size, dtype=torch.bfloat16).requires_grad_() for size in sizes]
    o = flash_attn_func(*inputs, causal=True, deterministic=deterministic)
    d_o = torch.randn_like(o)
    found = dict(zip(("d_q", "d_k", "d_v"), torch.autograd.grad(o, inputs, d_o), strict=True))
    q, k, v = (x.detach() for x in inputs)
    assert attention_gradients(q, k, v, d_o, causal=True).problem_with(found) == ""
    kernels = chosen(q.dtype, q.shape, k.shape, True, deterministic, q.device)
    assert (kernels.FAMILY, kernels.d_head) == ("sm80_bwd", d_head)


def test_the_same_tensor_three_times() -> None:
    x = draw("k").requires_grad_()
    (found,) = torch.autograd.grad(flash_attn_func(x, x, x).sum(), x)
    copies = [x.detach().clone().requires_grad_() for _ in range(3)]
    parts = torch.autograd.grad(flash_attn_func(*copies).sum(), copies)
    torch.testing.assert_close(found, parts[0] + parts[1] + parts[2])


def test_a_second_derivative_is_refused_in_words() -> None:
    q, k, v = leaves()
    (gradient,) = torch.autograd.grad(flash_attn_func(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="cannot be differentiated again"):
        torch.autograd.grad(gradient.sum(), v)


def test_an_input_changed_in_place_is_noticed() -> None:
    q, k, v = leaves()
    changed = q * 1
    total = flash_attn_func(changed, k, v).sum()
    changed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(total, q)


def test_a_directional_derivative() -> None:
    """<gradient, direction> is what the loss, computed in fp64, changes by along it."""
    from flash_helpers.check.reference import attention_reference

    inputs = leaves()
    o = flash_attn_func(*inputs, causal=True)
    d_o = draw(seed=3)
    found = torch.autograd.grad(o, inputs, d_o)

    def loss(step: float) -> float:
        q, k, v = (x.detach().double() + step * y for x, y in zip(inputs, along, strict=True))
        return float((attention_reference(q, k, v, fp64=True, causal=True)[0] * d_o).sum())

    along = [draw(name, seed=5).double() for name in SHAPES]
    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    given = sum(float((g.double() * y).sum()) for g, y in zip(found, along, strict=True))
    assert given == pytest.approx(slope, rel=5e-3)
