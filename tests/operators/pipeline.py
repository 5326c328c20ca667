"""A pipeline of operators: half of a transformer's layer, beside PyTorch's in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from flash_attention import operators, triton
from flash_attention.triton import emulated

Tensors = dict[str, torch.Tensor]
Stage = Callable[[Tensors, torch.Tensor], torch.Tensor]
HEADS, D_HEAD = 2, 64
WIDTH = HEADS * D_HEAD


def attention(qkv: torch.Tensor) -> torch.Tensor:
    q, k, v = (x.contiguous() for x in qkv.view(1, -1, 3, HEADS, D_HEAD).unbind(2))
    forward = emulated.forward if qkv.device.type == "cpu" else triton.forward
    return forward(q, k, v).view(-1, WIDTH)


def exact_attention(qkv: torch.Tensor) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in qkv.view(1, -1, 3, HEADS, D_HEAD).unbind(2))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, WIDTH)


# (stage, the same in PyTorch), each of the one before.
STAGES: dict[str, tuple[Stage, Stage]] = {
    "norm": (
        lambda given, x: operators.rms_norm(x, given["weight"]),
        lambda given, x: F.rms_norm(x, (WIDTH,), given["weight"], 1e-6),
    ),
    "product": (lambda given, x: operators.matmul(x, given["into"]),
                lambda given, x: x @ given["into"]),
    "attention": (lambda given, x: attention(x), lambda given, x: exact_attention(x)),
    "epilogue": (
        lambda given, x: operators.matmul(
            x, given["back"], bias=given["bias"], activation="silu", residual=given["x"]
        ),
        lambda given, x: F.silu(x @ given["back"] + given["bias"]) + given["x"],
    ),
}  # fmt: skip


def inputs(length: int, seed: int, device: str = "cpu") -> Tensors:
    """In fp16."""
    chance = torch.Generator().manual_seed(seed)
    shapes = {
        "x": (length, WIDTH), "weight": (WIDTH,), "into": (WIDTH, 3 * WIDTH),
        "back": (WIDTH, WIDTH), "bias": (WIDTH,),
    }  # fmt: skip
    scale = {"into": WIDTH**-0.5, "back": WIDTH**-0.5}
    return {
        name: (torch.randn(shape, generator=chance) * scale.get(name, 1.0)).half().to(device)
        for name, shape in shapes.items()
    }


def run(given: Tensors) -> dict[str, torch.Tensor]:
    """The output of every stage."""
    outputs, x = {}, given["x"]
    for name, (stage, _) in STAGES.items():
        outputs[name] = x = stage(given, x)
    return outputs


def check(given: Tensors, outputs: dict[str, torch.Tensor]) -> None:
    """Every stage is right by itself, of what the one before gave it; and the last one of all."""
    wide = {name: tensor.double() for name, tensor in given.items()}
    x = composed = wide["x"]
    for name, (_, exact) in STAGES.items():
        found = outputs[name].double()
        assert bool(found.isfinite().all()), name
        torch.testing.assert_close(found, exact(wide, x), rtol=2e-3, atol=2e-3, msg=said(name))
        x, composed = found, exact(wide, composed)
    torch.testing.assert_close(x, composed, rtol=1e-2, atol=1e-2, msg=said("all"))


def said(name: str) -> Any:
    return lambda message: f"{name}: {message}"
