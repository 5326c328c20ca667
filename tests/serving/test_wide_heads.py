"""Heads of more than 128 elements: their kernels multiply chunks of 64 columns, those that there
are, and sum the gradients of values and of keys one after the other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.serving import splits
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.serving import ServeRule, attend_sequence
from flash_helpers.check.tolerance import bitwise_equal, compare
from tests.serving.packed import NAMES, Packed, varlen
from tests.serving.problems import EVERYTHING, FULL, NAN, Batch, same_bits
from tests.serving.test_append import Rotary, append

CAUSAL = ServeRule(causal=True)
CAPPED = ServeRule(causal=True, window=(20, -1), softcap=2.0, scale=0.2)


@pytest.mark.parametrize(("d", "d_v"), [(136, 136), (192, 128), (200, 64), (256, 40), (192, 192)])
@pytest.mark.parametrize("queries", [[1, 5], [70, 19]], ids=["decode", "prompts"])
def test_dimensions(d: int, d_v: int, queries: list[int]) -> None:
    batch = Batch(queries, [90, 65], EVERYTHING, d=d, d_v=d_v, sinks=torch.randn(4))
    batch.check(batch.packed())
    batch.check(batch.packed(num_splits=2))


@pytest.mark.parametrize("group", [1, 8, 20, 71])
def test_groups(group: int) -> None:
    """Tiles of 16 and 32 rows, and several of a query's heads."""
    batch = Batch([1, 3], [70, 26], CAUSAL, heads=2 * group, d=192, d_v=128)
    batch.check(batch.packed())


@pytest.mark.parametrize("page", [1, 16])
def test_pages_are_the_same_as_a_cache(page: int) -> None:
    batch = Batch([2, 2], [150, 40], CAUSAL, d=256, leftpad=[0, 9], dtype=torch.bfloat16)
    contiguous = batch.cached(160)
    batch.check(contiguous)
    assert same_bits(contiguous, batch.paged(page))


@pytest.mark.parametrize("rotary", [None, Rotary.draw(256, True), Rotary.draw(64, False)], ids=str)
def test_new_keys_are_written_and_seen(rotary: Rotary | None) -> None:
    append(Batch([2, 2], [40, 3], CAUSAL, d=256, d_v=128), [2, 2], page=16, rotary=rotary)


def test_a_long_sequence_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """By thread blocks whose parts are merged, also by groups."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 20)
    batch = Batch([2, 2], [640, 3], CAUSAL, heads=64, kv_heads=1, d=192, d_v=128)
    batch.check(batch.cached(640))


@pytest.mark.parametrize("queries", [3, 70])
def test_elements_behind_a_head_are_not_read(queries: int) -> None:
    batch = Batch([queries], [80], FULL, d=200, d_v=136)
    for rows in (batch.q, batch.k, batch.v):
        wide = torch.full((*rows[0].shape[:-1], 320), NAN, dtype=torch.float16)
        wide[..., : rows[0].shape[-1]] = rows[0]
        rows[0] = wide[..., : rows[0].shape[-1]]
    k, v = batch.k[0][None], batch.v[0][None]
    batch.check(batch.with_cache(k, v))


def test_flash_attn_func_with_a_window() -> None:
    """Of a head dimension that is no multiple of 8, with gradients."""
    torch.manual_seed(0)
    rule = ServeRule(window=(20, 7))
    q, d_o = (torch.randn(1, 40, 2, 201, dtype=torch.float16) for _ in range(2))
    k, v = (torch.randn(1, 70, 1, 201, dtype=torch.float16) for _ in range(2))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    o: Any = flash_attention.flash_attn_func(q, k, v, window_size=rule.window)
    found = dict(zip(NAMES, torch.autograd.grad(o, leaves, d_o), strict=True))
    q, k, v = (x.detach() for x in (q, k, v))
    assert compare(o.detach()[0], attend_sequence(q[0], k[0], v[0], rule)[0]).passed
    assert attention_gradients(q, k, v, d_o, served=rule).problem_with(found) == ""


@pytest.mark.parametrize(
    "problem",
    [
        Packed([17, 0, 70, 1], [40, 5, 70, 130], CAPPED, d=256, with_sinks=True, with_d_lse=True),
        Packed([40, 9], [90, 0], d=192, d_v=128, heads=4, kv_heads=2, dtype=torch.bfloat16),
        Packed([150], [140], ServeRule(window=(9, 33)), d=200, heads=1),
        Packed([33], [80], FULL, d=160, d_v=24, dtype=torch.bfloat16),
    ],
    ids=["all", "192, 128", "window", "160, 24"],
)
def test_gradients(problem: Packed) -> None:
    problem.check()


def test_gradients_that_are_asked_for_alone() -> None:
    """Of keys or values alone: the other's sums are left out, and nothing else changes."""
    problem = Packed([20, 30], [25, 40], d=192)
    expected, _ = problem.call()
    for i, name in enumerate("qkv"):
        x = [problem.tensors[other].clone() for other in "qkv"]
        x[i].requires_grad_()
        o = varlen(*x, problem.starts(problem.queries), problem.starts(problem.keys), causal=True)
        o.backward(problem.tensors["d_o"])
        found = x[i].grad
        assert found is not None and bitwise_equal(found, expected[f"d_{name}"])


def test_a_scale_of_its_own() -> None:
    """The default is that of the head dimension that was given, not of the kernel's."""
    batch = Batch([4], [30], FULL, d=136)
    with_default = batch.packed()
    assert same_bits(with_default, batch.packed(softmax_scale=1 / math.sqrt(136)))
