"""torch.compile: a model without a break in its graph, one compilation for all lengths."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import flash_attention

from .ways import attend

LENGTHS = range(9, 29)


class Layer(torch.nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width, dtype=torch.float16)
        self.out = torch.nn.Linear(width, width, dtype=torch.float16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 1, 64)).unbind(2)
        found: Tensor = x + self.out(attend(q, k, v).flatten(2))
        return found


def model(seed: int) -> Any:
    torch.manual_seed(seed)
    torch._dynamo.reset()
    return torch.nn.Sequential(Layer(), Layer())


def test_one_compilation_serves_every_length(seed: int) -> None:
    plain = model(seed)
    counter = CompileCounterWithBackend("aot_eager")
    compiled: Any = torch.compile(plain, backend=counter, fullgraph=True, dynamic=True)
    for length in LENGTHS:
        x = torch.randn((2, length, 64), dtype=torch.float16)
        with torch.no_grad():
            assert torch.equal(compiled(x), plain(x))
    assert counter.frame_count == 1


def test_the_gradients_of_a_compiled_model_are_those_of_the_plain_one(seed: int) -> None:
    plain = model(seed)
    compiled: Any = torch.compile(plain, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (9, 20):
        x = torch.randn((2, length, 64), dtype=torch.float16)
        expected = torch.autograd.grad(plain(x).float().square().sum(), [*plain.parameters()])
        found = torch.autograd.grad(compiled(x).float().square().sum(), [*plain.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(("d", "d_v"), [(36, 36), (80, 24)])
def test_heads_that_no_dense_kernel_has(d: int, d_v: int) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled: Any = torch.compile(attend, backend=counter, fullgraph=True, dynamic=True)
    for length in (9, 20, 28):
        sizes = (length, 4, d), (length, 2, d), (length, 2, d_v)
        leaves = [torch.randn(2, *size).half().requires_grad_() for size in sizes]
        o, expected = compiled(*leaves), attend(*leaves)
        assert torch.equal(o, expected) and o.stride() == expected.stride()
        outer = torch.randn_like(o)
        found = torch.autograd.grad(o, leaves, outer)
        assert all(map(torch.equal, found, torch.autograd.grad(expected, leaves, outer)))
    assert counter.frame_count == 1


def test_a_scale_that_changes_is_not_kept(seed: int) -> None:
    torch.manual_seed(seed)
    torch._dynamo.reset()
    q, k, v = (torch.randn((1, 16, 1, 64), dtype=torch.float16) for _ in range(3))
    call: Any = flash_attention.flash_attn_func
    whole = torch.compile(
        lambda q, k, v, scale: call(q, k, v, softmax_scale=scale),
        backend="aot_eager", fullgraph=True, dynamic=True,
    )  # fmt: skip
    for scale in (0.1, 0.2, -0.3, 0.0):
        assert torch.equal(whole(q, k, v, scale), call(q, k, v, softmax_scale=scale))
    with pytest.raises(Exception, match="softmax_scale is inf: it must be finite"):
        whole(q, k, v, float("inf"))


def test_classes_are_asked_for_by_tuples() -> None:
    """torch.compile of PyTorch 2.6 ends at isinstance(x, tuple | list) in what it reads."""
    unions = [
        f"{path.name}:{node.lineno}"
        for path in Path(flash_attention.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and isinstance(node.args[1], ast.BinOp)
    ]
    assert unions == []


@pytest.mark.slow
def test_inductor_compiles_it(seed: int) -> None:
    plain = model(seed)
    compiled: Any = torch.compile(plain, fullgraph=True, dynamic=True)
    for length in (9, 20):
        x = torch.randn((2, length, 64), dtype=torch.float16)
        torch.testing.assert_close(compiled(x), plain(x), atol=2e-3, rtol=2e-3)
