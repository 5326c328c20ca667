"""A call that has no backward pass is refused where a gradient is required: it would be lost."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.elementwise.op import BlockConfig
from flash_attention.operators.matrices.config import MatmulConfig
from flash_attention.operators.rows.op import RowConfig

X, ROW = torch.ones(8, 8), torch.ones(8)
ROWS = RowConfig(1, 16, True, 1)
NORM = {"x": X, "weight": ROW, "residual": X}
# Every tensor that can have a gradient, and a configuration; (more arguments).
CALLS: dict[str, tuple[dict[str, torch.Tensor], object, dict[str, Any]]] = {
    "add": ({"x": X, "y": X}, BlockConfig(), {}),
    "add_scalar": ({"x": X}, BlockConfig(), {"alpha": 1.0}),
    "conv2d": ({"x": X[None, None], "weight": X[None, None], "bias": ROW[:1]}, MatmulConfig(), {}),
    "cross_entropy": ({"logits": X}, ROWS, {"target": torch.arange(8)}),
    "gelu": ({"x": X}, BlockConfig(), {}),
    "layer_norm": ({**NORM, "bias": ROW}, ROWS, {}),
    "log_softmax": ({"x": X}, ROWS, {}),
    "matmul": ({"a": X, "b": X, "bias": ROW, "residual": X}, MatmulConfig(), {}),
    "mean_var": ({"x": X}, ROWS, {}),
    "relu": ({"x": X}, BlockConfig(), {}),
    "rms_norm": (NORM, ROWS, {}),
    "silu": ({"x": X}, BlockConfig(), {}),
    "softmax": ({"x": X}, ROWS, {}),
}
OWN = {
    (name, own)
    for name in operators.__all__
    for own in ("config", "out")
    if own in inspect.signature(getattr(operators, name)).parameters
}
CASES = [(*case, tensor) for case in sorted(OWN) for tensor in CALLS[case[0]][0]]


@pytest.mark.parametrize(("name", "own", "tensor"), CASES)
def test_refused(name: str, own: str, tensor: str) -> None:
    tensors, config, more = CALLS[name]
    call = getattr(operators, name)
    given = {**tensors, **more, own: config if own == "config" else torch.zeros(8, 8)}
    leaf = {tensor: tensors[tensor].clone().requires_grad_()}
    message = f"{tensor} requires a gradient, and a call with {own} has no backward pass: leave "
    with pytest.raises(ValueError, match=re.escape(message)):
        call(**given | leaf)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"conv2d", "mean_var"}))
def test_only_autograd_sees_a_call(name: str) -> None:
    """PyTorch's dispatcher, there and back, took a millisecond of a short norm."""
    tensors, _, more = CALLS[name]
    leaves = {key: tensor.clone().requires_grad_() for key, tensor in tensors.items()}
    result = getattr(operators, name)(**leaves, **more)
    first = result[0] if isinstance(result, tuple) else result
    assert not type(first.grad_fn).__name__.startswith("Generated")
    (slope,) = torch.autograd.grad(first.sum(), next(iter(leaves.values())), create_graph=True)
    if slope.requires_grad and name != "matmul":  # a second derivative is refused, and not lost
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            torch.autograd.grad(slope.sum(), next(iter(leaves.values())))


@pytest.mark.parametrize(("name", "own"), sorted({("softmax", "config"), ("relu", "out")}))
def test_taken_where_no_gradient_is_recorded(name: str, own: str) -> None:
    tensors, config, more = CALLS[name]
    given = {**tensors, **more, own: config if own == "config" else torch.zeros(8, 8)}
    expected = getattr(torch, name)(X, *([-1] if name == "softmax" else []))
    with torch.no_grad():
        leaf = X.clone().requires_grad_()
        assert torch.allclose(getattr(operators, name)(**given | {"x": leaf}), expected)
