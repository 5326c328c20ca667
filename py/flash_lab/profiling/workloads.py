"""What the commands `benchmark` and `profile` run: a few examples by name, or any function."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from flash_helpers.base.lazy import torch
from flash_helpers.base.words import kind_of

from .mlp import get_device, make_mlp
from .nvtx import annotate, annotate_modules

Run = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """The examples' shape: elements of 16 bits on a GPU, of 32 on the CPU."""

    batch: int = 4
    seq_len: int = 2048
    heads: int = 16
    d_head: int = 128
    num_layers: int = 4

    @property
    def dim(self) -> int:
        return self.heads * self.d_head


def find(name: str, size: Size) -> Run:
    """`name`: one of EXAMPLES, or MODULE:FUNCTION, which is imported and takes no arguments.
    Raises ValueError for anything else."""
    if name in EXAMPLES:
        return EXAMPLES[name](size)
    module, found, function = name.partition(":")
    if not found:
        close = difflib.get_close_matches(name, EXAMPLES, n=1)
        nearest = f"; the nearest is {close[0]}" if close else ""
        raise ValueError(
            f"{name!r} is not known: expected {', '.join(EXAMPLES)} or MODULE:FUNCTION{nearest}"
        )
    try:
        run = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name!r} cannot be imported: {error}") from None
    if not callable(run):
        raise ValueError(f"{name!r} is {kind_of(run)}: expected a function")
    return run  # type: ignore[no-any-return]


def _matmul(size: Size) -> Run:
    a, b = (_randn(size.dim, size.dim) for _ in range(2))
    return lambda: a @ b


def _attention(size: Size) -> Run:
    shape = (size.batch, size.seq_len, size.heads, size.d_head)
    q, k, v = (_randn(*shape) for _ in range(3))
    function = attention_function()
    return lambda: function(q, k, v)


def _mlp(size: Size) -> Run:
    """Forward and backward."""
    model = _placed(make_mlp(size.dim, size.num_layers))
    x = _randn(size.batch * size.seq_len, size.dim)

    annotate_modules(model)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        model(x).float().mean().backward()

    return run


def _block(size: Size) -> Run:
    """Attention and MLP of a transformer, forward."""
    model = _placed(make_block(size))
    x = _randn(size.batch, size.seq_len, size.dim)

    annotate_modules(model, backward=False)

    def run() -> None:
        with torch.no_grad():
            model(x)

    return run


EXAMPLES: dict[str, Callable[[Size], Run]] = {
    "attention": _attention, "block": _block, "matmul": _matmul, "mlp": _mlp,
}  # fmt: skip


def make_block(size: Size) -> torch.nn.Module:
    """On (batch, seq, dim): x + attention, then + MLP, each after a norm."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            dim = size.dim
            self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(2)])
            self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            self.attention = attention_function()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            shape = (*x.shape[:2], 3, size.heads, size.d_head)
            q, k, v = self.qkv(self.norms[0](x)).view(shape).unbind(2)
            with annotate("attention"):
                attended = self.attention(q, k, v)
            x = x + self.project(attended.flatten(2))
            y: torch.Tensor = x + self.mlp(self.norms[1](x))
            return y

    return Block()


def attention_function() -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Ours on a GPU that this build serves, else PyTorch's; on (batch, seq, heads, d_head)."""

    def of_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

    if get_device().type != "cuda":
        return of_torch
    try:
        import flash_attention

        flash_attention.library_info()
    except ImportError:
        print("attention: PyTorch's, since flash_attention is not built")
        return of_torch
    return flash_attention.flash_attn_func  # type: ignore[return-value]


def _randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=get_device(), dtype=_dtype())


def _placed(model: torch.nn.Module) -> torch.nn.Module:
    return model.to(device=get_device(), dtype=_dtype())


def _dtype() -> torch.dtype:
    return torch.float16 if get_device().type == "cuda" else torch.float32
