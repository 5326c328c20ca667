"""What calls cost the host, and what their parts do: `python -m tests.gpu.host_parts` prints
medians and least of rounds in turns, in one process, then what a launch alone costs C++."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._C._dynamo import guards

import flash_attention
from flash_attention.checks.eager import QUIET_FUNCTIONS
from flash_attention.drop_in import sdpa as drop_in
from flash_attention.plain_calls import plain_call
from flash_helpers.compilers.toolchain import find_nvcc

from .times import Call, microseconds

ROUNDS = 31
attend: Any = flash_attention.flash_attn_func
packed_attend: Any = flash_attention.flash_attn_varlen_func
cached_attend: Any = flash_attention.flash_attn_with_kvcache
mla_attend: Any = flash_attention.flash_mla_with_kvcache
sdpa: Any = torch.nn.functional.scaled_dot_product_attention


class Empty(torch.autograd.Function):
    """What autograd costs a function of three tensors that computes nothing."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx: Any, *d_o: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return d_o[0], d_o[0], d_o[0]


def parts(q: torch.Tensor) -> Iterator[tuple[str, Call]]:
    direct, sleep = vars(guards)["_empty_strided_cuda"], vars(torch._C)["_cuda_sleep"]
    described = tuple(q.shape), q.stride(), q.dtype
    yield "nothing", lambda: None
    yield "empty_like", lambda: torch.empty_like(q)
    yield "_empty_strided_cuda", lambda: direct(*described)
    yield "_sleep(0): a launch", lambda: sleep(0)
    for function in (*QUIET_FUNCTIONS, torch.is_grad_enabled, torch._C._cuda_getDevice):
        yield str(function.__name__), function
    yield "is_neg", lambda: torch.Tensor.is_neg(q)
    yield "requires_grad", lambda: q.requires_grad


def passes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Iterator[tuple[str, Call]]:
    short = plain_call()
    empty: Any = Empty.apply
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    d_o = torch.randn_like(q)
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]

    def both(forward: Callable[..., torch.Tensor]) -> Call:
        return lambda: torch.autograd.grad(forward(*leaves), leaves, d_o)

    yield "flash_attn_func", lambda: attend(q, k, v)
    yield "its C++", lambda: short(q, k, v, None, False, False, False)
    yield "flash_attn_func with lse", lambda: attend(q, k, v, return_attn_probs=True)
    yield "PyTorch's SDPA, FA2", lambda: sdpa(*heads_first)
    yield "recorded forward", lambda: attend(*leaves)
    yield "recorded forward, empty", lambda: empty(*leaves)
    yield "forward and backward", both(attend)
    yield "forward and backward, empty", both(empty)


def serving(heads: int = 8, d_head: int = 128) -> Iterator[tuple[str, Call]]:
    def new(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device="cuda", dtype=torch.float16)

    def starts(lengths: list[int]) -> torch.Tensor:
        return torch.tensor([0, *itertools.accumulate(lengths)], device="cuda", dtype=torch.int32)

    q, caches = new(4, 1, heads, d_head), [new(4, 1024, heads, d_head) for _ in "kv"]
    used = torch.tensor([5, 700, 1000, 64], device="cuda", dtype=torch.int32)
    yield (
        "flash_attn_with_kvcache",
        lambda: cached_attend(q, *caches, cache_seqlens=used),
    )
    for dtype in (torch.float32, torch.bfloat16):
        sinks = torch.zeros(heads, device="cuda", dtype=dtype)
        yield (
            f"with sinks, {dtype}",
            partial(cached_attend, q, *caches, cache_seqlens=used, s_aux=sinks),
        )
    whole, latents = new(4, 1, 16, 576), new(4, 1024, 1, 576)
    yield "flash_mla_with_kvcache", partial(mla_attend, whole, latents, None, used, 512)
    parts = whole[..., 512:], latents[..., 512:], latents[..., :512]
    yield "with qv", partial(cached_attend, *parts, qv=whole[..., :512], cache_seqlens=used)
    lengths = [[7 + i, 30, 64 + 3 * i] for i in range(16)]
    packed = itertools.cycle(
        ([new(sum(n), heads, d_head) for _ in "qkv"], starts(n), max(n)) for n in lengths
    )
    for _ in lengths:  # made before anything is timed
        next(packed)

    def varlen() -> object:
        qkv, at, longest = next(packed)
        return packed_attend(*qkv, at, at, longest, longest, causal=True)

    yield "flash_attn_varlen_func", varlen


def measure(calls: dict[str, Call]) -> None:
    """Prints a line for each call; of one that fails, why."""
    times: dict[str, list[float]] = {}
    for name, call in calls.items():
        try:
            call(), microseconds(call)
            times[name] = []
        except Exception as error:  # a build without such kernels: the others are measured
            print(f"{name:32} {type(error).__name__}: {error}", flush=True)
    for _ in range(ROUNDS):
        for name, found in times.items():
            found.append(microseconds(calls[name]))
    for name, found in times.items():
        line = f"{name:32} {statistics.median(found):7.2f} us  (least {min(found):.2f})"
        print(line, flush=True)


def launches() -> None:
    """Of a program without Python."""
    with tempfile.TemporaryDirectory() as folder:
        program, source = Path(folder) / "launch_cost", Path(__file__).with_name("launch_cost.cu")
        flags = ["-arch=native", "-std=c++20", "-O2"]
        subprocess.run([find_nvcc().path, *flags, source, "-o", program], check=True)
        subprocess.run([program], check=True)


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    q, k, v = (torch.randn(2, 512, 8, 128, device="cuda").half() for _ in "qkv")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        measure(dict(parts(q)) | dict(passes(q, k, v)) | dict(serving()))
        drop_in.enable()
        heads_first = [x.transpose(1, 2) for x in (q, k, v)]
        leaves = [x.detach().requires_grad_() for x in heads_first]
        ours: dict[str, Call] = {
            "SDPA, ours": lambda: sdpa(*heads_first),
            "SDPA, ours, recorded": lambda: sdpa(*leaves),
            "flash_attn_func": lambda: attend(q, k, v),
        }
        measure(ours)
        drop_in.disable()
    launches()


if __name__ == "__main__":
    main()
