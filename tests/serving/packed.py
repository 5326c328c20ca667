"""Packed sequences whose gradients are compared with their definition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

import flash_attention
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.serving import ServeRule
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernels.sm80_bwd_serve.family import Sm80BackwardServe
from flash_helpers.kernels.sm90_bwd_fused_serve import config as fused_serve

from .problems import NAN, ints
from .sinks import SinkGradient

CAUSAL = ServeRule(causal=True)
NAMES = ("d_q", "d_k", "d_v")
varlen: Any = flash_attention.flash_attn_varlen_func


@contextmanager
def hopper_gradients() -> Iterator[None]:
    """The Hopper family computes them, however short sequences are: the other one is asked last,
    and nobody has asked for deterministic gradients, though memory is poisoned."""
    with (
        mock.patch.object(Sm80BackwardServe, "preference", lambda *_: -1),
        mock.patch.object(fused_serve, "LEAST_MEAN_ROWS", 0),
        mock.patch.object(torch, "are_deterministic_algorithms_enabled", lambda: False),
    ):
        yield


@dataclass
class Packed:
    """Packed sequences with 3 rows of NaN before and 2 after, and normally distributed tensors."""

    queries: list[int]
    keys: list[int]
    rule: ServeRule = CAUSAL
    heads: int = 2
    kv_heads: int = 1
    d: int = 64
    d_v: int = 0
    dtype: torch.dtype = torch.float16
    with_sinks: bool = False
    with_d_lse: bool = False
    device: str = "cpu"
    tensors: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        d_v = self.d_v or self.d
        n_queries, n_keys = sum(self.queries) + 5, sum(self.keys) + 5

        def draw(*shape: int) -> torch.Tensor:
            x = torch.randn(shape, device=self.device).to(self.dtype)
            x[:3] = x[-2:] = NAN
            return x

        self.tensors = {
            "q": draw(n_queries, self.heads, self.d),
            "k": draw(n_keys, self.kv_heads, self.d),
            "v": draw(n_keys, self.kv_heads, d_v),
            "d_o": draw(n_queries, self.heads, d_v),
        }
        self.sinks = torch.randn(self.heads, device=self.device) if self.with_sinks else None
        self.d_lse = None
        if self.with_d_lse:
            self.d_lse = torch.randn(self.heads, n_queries, device=self.device)

    def starts(self, lengths: list[int]) -> torch.Tensor:
        return ints([3 + sum(lengths[:i]) for i in range(len(lengths) + 1)], self.device)

    def call(self, **options: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
        """The gradients by name, and that of the sinks."""
        leaves = [self.tensors[name].clone().requires_grad_() for name in "qkv"]
        sinks = None if self.sinks is None else self.sinks.clone().requires_grad_()
        rule = self.rule
        o, lse, _ = varlen(
            *leaves, self.starts(self.queries), self.starts(self.keys), causal=rule.causal,
            window_size=rule.window, softcap=rule.softcap, softmax_scale=rule.scale,
            return_attn_probs=True, s_aux=sinks, **options,
        )  # fmt: skip
        outputs, grads = [o], [self.tensors["d_o"]]
        if self.d_lse is not None:
            outputs, grads = [o, lse], [self.tensors["d_o"], self.d_lse]
        inputs = leaves if sinks is None else [*leaves, sinks]
        found = torch.autograd.grad(outputs, inputs, grads)
        return dict(zip(NAMES, found, strict=False)), None if sinks is None else found[3]

    def check_alone(self, name: str) -> None:
        """The gradient of `name` alone has the bits that it has with the others."""
        expected, _ = self.call()
        x = {n: self.tensors[n].clone().requires_grad_(n == name) for n in "qkv"}
        o = varlen(
            *x.values(), self.starts(self.queries), self.starts(self.keys), causal=self.rule.causal
        )
        o.backward(self.tensors["d_o"])
        grad = x[name].grad
        assert grad is not None and bitwise_equal(grad, expected[f"d_{name}"])
        assert all(other.grad is None for n, other in x.items() if n != name)

    def check(self, *, margin: float = 1.0, **options: Any) -> None:
        """`margin`: that much more than the rule of check/gradients.py allows."""
        found, d_sinks = self.call(**options)
        sinks = None if self.sinks is None else SinkGradient(self.rule, self.sinks, self.dtype)
        used: dict[str, Any] = {n: options.get(n) for n in ("seqused_q", "seqused_k")}
        spans = [
            [(a, a + int(used[name][i]) if used[name] is not None else b)
             for i, (a, b) in enumerate(itertools.pairwise(self.starts(lengths).tolist()))]
            for name, lengths in (("seqused_q", self.queries), ("seqused_k", self.keys))
        ]  # fmt: skip
        for (a, b), (c, d) in zip(*spans, strict=True):
            rows = {"q": slice(a, b), "d_o": slice(a, b), "k": slice(c, d), "v": slice(c, d)}
            q, k, v, d_o = (self.tensors[n][rows[n]][None] for n in ("q", "k", "v", "d_o"))
            d_lse = None if self.d_lse is None else self.d_lse[None, :, a:b]
            v, d_o = (torch.nn.functional.pad(x, (0, self.d - x.shape[-1])) for x in (v, d_o))
            reference = attention_gradients(
                q, k, v, d_o, d_lse=d_lse, served=self.rule, sinks=self.sinks
            )
            got = {n: found[n][rows[n[2:]]][None] for n in NAMES}
            got["d_v"] = torch.nn.functional.pad(got["d_v"], (0, self.d - got["d_v"].shape[-1]))
            worst = {n: error / margin for n, error in reference.worst_rows(got).items()}
            assert all(error <= 1 for error in worst.values()), (
                f"queries {a}:{b}, keys {c}:{d}: {worst} of the allowed error"
            )
            if sinks is not None:
                sinks.add(q[0], k[0], v[0], d_o[0], None if d_lse is None else d_lse[0])
        for name, span in (("d_q", spans[0]), ("d_k", spans[1]), ("d_v", spans[1])):
            outside = torch.ones(len(found[name]), dtype=torch.bool, device=self.device)
            for a, b in span:
                outside[a:b] = False
            assert not found[name][outside].any()
        if sinks is not None and d_sinks is not None:
            assert sinks.worst(d_sinks) <= 1


def check_equal_lengths_with_a_window() -> None:
    """Gradients of `flash_attn_func` with a window, of whichever family is asked first."""
    torch.manual_seed(0)
    q, d_o = (torch.randn(2, 50, 2, 64, dtype=torch.float16) for _ in range(2))
    k, v = (torch.randn(2, 80, 1, 64, dtype=torch.float16) for _ in range(2))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    o = flash_attention.flash_attn_func(q, k, v, window_size=(20, 7))
    assert isinstance(o, torch.Tensor)
    found = dict(zip(NAMES, torch.autograd.grad(o, leaves, d_o), strict=True))
    rule = ServeRule(window=(20, 7))
    q, k, v = (x.detach() for x in (q, k, v))
    assert attention_gradients(q, k, v, d_o, served=rule).problem_with(found) == ""
