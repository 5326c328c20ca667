"""Shapes and data that ordinary problems miss, in the emulator, for both families: every diagonal
of the mask against the blocks, more KV heads than a section holds, strides beyond 2^31 elements,
and scores that outgrow what the optimistic softmax assumed."""

from __future__ import annotations

import mmap

import pytest
import torch

import flash_attention
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare
from flash_helpers.kernel_configs import KernelConfig, parse_kernel_name_into_config

from . import tensors

AMPERE = "(FP16, 64, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax"
HOPPER = "(FP16, 64, 128, 64, 2, 2, 1): hopper+lazy+overlap"
THREE_GROUPS = "(FP16, 64, 192, 96, 3, 2, 2): hopper+optimistic+overlap"
STAGED = "(FP16, 256, 128, 80, 2, 2, 1): hopper+lazy+overlap+pingpong+oinq"
NO_RESERVE = 0x4000  # Linux; mmap has it from Python 3.13 on
FAR = 2**31 + 1024  # elements: more than 32 bits can say


def check(
    name: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor | None = None,
    *,
    causal: bool,
) -> None:
    config: KernelConfig = parse_kernel_name_into_config(name)
    o = torch.full(q.shape, torch.nan, dtype=q.dtype) if o is None else o
    flash_attention.forward(config, q, k, v, o, causal=causal)
    reference, _ = attention_reference(q, k, v, causal=causal)
    outcome = compare(o, reference)
    assert outcome.passed, f"{q.shape[1]} x {k.shape[1]}: {outcome.describe()}"


def draw(
    seed: int, q_shape: tuple[int, ...], k_shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tensors.draw(seed, torch.float16, q_shape, k_shape)


@pytest.mark.parametrize("name", [AMPERE, HOPPER])
def test_every_diagonal(name: str, seed: int) -> None:
    """The last key that the first row of a block sees stands in every place of a block of keys."""
    for n_keys in range(70, 70 + 64):
        q, k, v = draw(seed, (1, 70, 1, 64), (1, n_keys, 1, 64))
        check(name, q, k, v, causal=True)


@pytest.mark.parametrize("name", [AMPERE, HOPPER])
def test_every_key_length(name: str, seed: int) -> None:
    """The keys end in every place of a block, and no mask hides it; 129 is three blocks."""
    for n_keys in (*range(1, 65), 127, 128, 129):
        q, k, v = draw(seed, (1, 33, 1, 64), (1, n_keys, 1, 64))
        check(name, q, k, v, causal=False)


@pytest.mark.parametrize("name", [AMPERE, HOPPER])
def test_more_than_32_kv_heads(name: str, seed: int) -> None:
    """Several tiles a head, so that sections of heads are walked and the last is cut."""
    q, k, v = draw(seed, (1, 140, 40, 64), (1, 100, 40, 64))
    check(name, q, k, v, causal=True)


def far_apart(shape: tuple[int, ...], axis: int) -> torch.Tensor:
    """A tensor with a stride that 32 bits cannot hold: elements of a batch or head, bytes of rows,
    of which there are more. Of its memory only what is touched exists."""
    strides = list(torch.empty(shape, device="meta").stride())
    strides[axis] = FAR if axis != 1 else FAR // 2
    extent = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + 1
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    memory = torch.frombuffer(mmap.mmap(-1, 2 * extent, flags=flags), dtype=torch.float16)
    return memory.as_strided(shape, strides)


@pytest.mark.parametrize("name", [AMPERE, HOPPER])
@pytest.mark.parametrize("far", ["q", "k", "v", "o"])
@pytest.mark.parametrize("axis", [0, 1, 2], ids=["batch", "row", "head"])
def test_far_strides(name: str, far: str, axis: int, seed: int) -> None:
    shape = (2, 70, 2, 64)
    drawn = dict(zip("qkv", draw(seed, shape, shape), strict=True))
    moved = far_apart(shape, axis)
    moved.copy_(drawn.get(far, torch.full(shape, torch.nan)))
    check(name, **(drawn | {far: moved}), causal=False)


@pytest.mark.parametrize("name", [AMPERE, HOPPER])
def test_rows_far_apart_that_see_nothing(name: str, seed: int) -> None:
    """Whole blocks of them, whose zeros have a way to memory of their own."""
    q, k, v = draw(seed, (1, 300, 1, 64), (1, 40, 1, 64))
    o = far_apart((1, 300, 1, 64), axis=1).fill_(torch.nan)
    check(name, q, k, v, o=o, causal=True)


@pytest.mark.parametrize("name", [THREE_GROUPS, STAGED])
@pytest.mark.parametrize("causal", [False, True])
def test_scores_that_outgrow_what_was_assumed(name: str, causal: bool, seed: int) -> None:
    """Each block of keys has larger scores than all before it, by more than fp16 can hold."""
    d_head = parse_kernel_name_into_config(name).d_head
    q, k, v = draw(seed, (1, 200, 1, d_head), (1, 330, 1, d_head))
    growth = torch.linspace(0, 1, 330).view(1, -1, 1, 1)
    q = 2 * q
    k = (k.float() * 0.1 + 24 * growth * q.float().mean((1, 2), keepdim=True)).half()
    check(name, q * 2, k, v, causal=causal)
