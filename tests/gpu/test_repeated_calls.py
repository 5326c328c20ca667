"""Calls like one before: queued by the driver, from any thread, and with outputs that are laid out
as PyTorch's empty_like would."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import flash_attention
from flash_helpers.check.tolerance import bitwise_equal

pytestmark = pytest.mark.gpu

attend: Any = flash_attention.flash_attn_func
with_cache: Any = flash_attention.flash_attn_with_kvcache

LAYOUTS = {
    "contiguous": lambda new: new(2, 96, 4, 128),
    "heads first": lambda new: new(2, 4, 96, 128).transpose(1, 2),
    "packed": lambda new: new(2, 96, 3, 4, 128)[:, :, 1],
    "padded rows": lambda new: new(2, 96, 4, 136)[..., :128],
    "batch last": lambda new: new(96, 4, 2, 128).permute(2, 0, 1, 3),
    "one batch": lambda new: new(1, 96, 4, 128),
    "one head": lambda new: new(2, 1, 96, 128).transpose(1, 2),
    "the same batch": lambda new: new(1, 96, 4, 128).expand(2, -1, -1, -1),
}


def new(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=torch.float16)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_outputs_are_laid_out_alike(layout: str) -> None:
    q, k, v = (LAYOUTS[layout](new) for _ in "qkv")
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    expected = torch.empty_like(q).stride()
    first = attend(q, k, v)
    for _ in range(3):
        o, lse, _ = attend(q, k, v, return_attn_probs=True)
        assert o.stride() == first.stride() == expected and bitwise_equal(o, first)
        assert lse.is_contiguous() and lse.shape == (q.shape[0], q.shape[2], q.shape[1])
        for gradient in torch.autograd.grad(attend(*leaves).sum(), leaves):
            assert gradient.stride() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_of_caches_are_contiguous(dtype: torch.dtype) -> None:
    q = new(3, 2, 4, 136).to(dtype)[..., :128]
    caches = [new(3, 64, 4, 128).to(dtype) for _ in "kv"]
    used = torch.tensor([5, 64, 17], device="cuda", dtype=torch.int32)
    first, first_lse = with_cache(q, *caches, cache_seqlens=used, return_softmax_lse=True)
    for _ in range(3):
        o, lse = with_cache(q, *caches, cache_seqlens=used, return_softmax_lse=True)
        assert o.is_contiguous() and o.dtype is dtype and bitwise_equal(o, first)
        assert lse.is_contiguous() and lse.dtype is torch.float32
        assert lse.shape == (3, 4, 2) and bitwise_equal(lse, first_lse)
        assert with_cache(q, *caches, cache_seqlens=used).stride() == o.stride()


def test_the_driver_queues_the_kernel() -> None:
    """Should it refuse, the runtime does, which takes longer and is right as well."""
    q = new(2, 96, 4, 128)
    attend(q, q, q)
    with_gradient = new(2, 96, 4, 128).requires_grad_()
    attend(with_gradient, q, q).sum().backward()
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
        for _ in range(3):
            attend(q, q, q)
        o = attend(with_gradient, q, q)
        torch.autograd.grad(o, with_gradient, q)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert names.count("cuLaunchKernel") >= 4 and "cudaLaunchKernel" not in names
    if torch.cuda.get_device_capability() == (9, 0):  # those queued early
        assert names.count("cuLaunchKernelEx") >= 2


def test_a_thread_that_never_called_cuda() -> None:
    """It has no current context until the runtime is asked."""
    q = new(2, 96, 4, 128)
    expected = attend(q, q, q)
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.extend(attend(q, q, q) for _ in range(3)))
    thread.start()
    thread.join()
    assert len(found) == 3 and all(bitwise_equal(o, expected) for o in found)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_outputs_are_on_the_tensors_device() -> None:
    q = new(2, 96, 4, 128)
    expected = attend(q, q, q)
    with torch.cuda.device(1):
        for _ in range(3):
            o = attend(q, q, q)
            assert o.device == q.device and bitwise_equal(o, expected)
