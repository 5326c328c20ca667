"""Backward passes like one that was checked before: launched without checks, and by their own kind
alone. With a stand-in for the extension's cache, which needs a GPU (tests/gpu); what that one
refuses is tests/build/test_extension.py's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attention import gradients
from flash_attention.gradients import Inputs
from flash_helpers.kernels.backward_args import POINTER_FIELDS

from .problems import SMALLS, Problem

AMPERE, _, _, FUSED, _ = SMALLS
Call = tuple[Any, ...]


class Cache:
    """Which takes every call, or none."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.calls: list[Call] = []

    def again(self, *call: Any) -> bool:
        self.calls.append(call)
        return self.takes


class OnGpu(torch.Tensor):
    """Says so."""

    is_cuda = True


def inputs_of(config: Any, **changed: Any) -> Inputs:
    problem = Problem(config, 40, 70, heads=4, kv_heads=2)
    o, lse = problem.outputs
    found = {**problem.inputs, "o": o, "lse": lse, "d_lse": None, **changed}
    found["q"] = found["q"].as_subclass(OnGpu)
    return Inputs(**found)


def again(cache: Cache, config: Any, inputs: Inputs, wanted: str = "qkv") -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gradients, "launch_cache", lambda: cache)
        patched.setattr(gradients, "make_backward_plan", lambda *_: pytest.fail("it was checked"))
        return gradients.launch_again(config, inputs, 0.5, True, tuple(wanted))


@pytest.mark.parametrize("config", [AMPERE, FUSED], ids=["Ampere", "fused"])
def test_tensors_come_in_the_order_of_the_record(config: Any) -> None:
    cache, inputs = Cache(takes=True), inputs_of(config)
    d_q, d_k, d_v = again(cache, config, inputs)
    ((key, *tensors, scale, causal, grad_enabled),) = cache.calls
    assert key is config and (scale, causal, grad_enabled) == (0.5, True, True)
    named = dict(zip(POINTER_FIELDS, tensors, strict=True))
    assert all(given is x for given, x in zip(tensors, inputs, strict=False))
    assert (named["d_q"] is d_q, named["d_k"] is d_k, named["d_v"] is d_v) == (True,) * 3
    assert [x.shape for x in (d_q, d_k, d_v)] == [x.shape for x in inputs[:3]]
    assert named["row_stats"].shape == (1, 4, 128, 2)
    sums = named["d_q_sums"]
    # A counter for each row; and each of a KV head's two query heads has a thread block, which
    # leaves sums of dK and dV.
    behind = 4 + 2 * 2 * 2 * 128 * 64
    assert sums is None if config is AMPERE else sums.numel() == 4 * 128 * 65 + behind


def test_only_the_wanted_gradients_are_made() -> None:
    cache = Cache(takes=True)
    d_q, d_k, d_v = again(cache, FUSED, inputs_of(FUSED), wanted="k")
    assert (d_q, d_v) == (None, None) and d_k is not None
    assert [x is None for x in cache.calls[0][8:11]] == [True, False, True]


@pytest.mark.parametrize("name", ["q", "k", "v", "o", "d_o"])
def test_a_negated_view_is_not_for_the_cache(name: str) -> None:
    cache = Cache(takes=True)
    like = getattr(inputs_of(FUSED), name).as_subclass(torch.Tensor)
    assert again(cache, FUSED, inputs_of(FUSED, **{name: torch._neg_view(like)})) is None
    assert cache.calls == []


def test_what_the_cache_does_not_know_is_checked() -> None:
    assert again(Cache(takes=False), FUSED, inputs_of(FUSED)) is None
