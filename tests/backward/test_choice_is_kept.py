"""Kernels for the gradients are chosen once for a kind of call: that takes longer than a pass."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_attention import dispatch


def _gradient(length: int) -> torch.Tensor:
    q, k, v = (torch.randn((1, length, 1, 64), dtype=torch.float16) for _ in range(3))
    (d_q,) = torch.autograd.grad(flash_attention.flash_attn_func(q.requires_grad_(), k, v).sum(), q)  # type: ignore[union-attr]
    return d_q


def test_the_second_call_chooses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _gradient(70)
    asked = []
    choose = dispatch.choose

    def counted(problem: object, *others: object, **named: object) -> object:
        asked.append(problem)
        return choose(problem, *others, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch, "choose", counted)
    _gradient(70)
    assert not [problem for problem in asked if problem.gradients]  # type: ignore[attr-defined]
    _gradient(71)
    assert [problem for problem in asked if problem.gradients]  # type: ignore[attr-defined]
