"""The Hopper family's backward passes beside PyTorch's FlashAttention-2 and cuDNN, on the GPU of
this machine: times, then errors of the gradients' rows on the same tensors.

    python -m tests.gpu.backward_beside_peers SECONDS [--without_fused]

After so many seconds nothing further is begun, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.gradients import attention_gradients
from flash_lab.accuracy.measure import row_errors
from flash_lab.bench.distributions import draw

from .backward_times import milliseconds, problem_of

BACKENDS = torch.nn.attention.SDPBackend
PEERS = {"FA2": BACKENDS.FLASH_ATTENTION, "cuDNN": BACKENDS.CUDNN_ATTENTION}
KINDS = (*PEERS, "hopper_backward", "COPIES", "REGISTERS")
NAMES = ("d_q", "d_k", "d_v")


def kind(name: str) -> str:
    """Of KINDS."""
    return next((word for word in ("COPIES", "REGISTERS", "hopper_backward") if word in name), name)


def peers(leaves: list[torch.Tensor], d_o: torch.Tensor, causal: bool) -> dict[str, Any]:
    """By name: a call that gives (dQ, dK, dV), the forward pass outside of it."""
    sdpa: Any = torch.nn.functional.scaled_dot_product_attention
    found: dict[str, Any] = {}
    for name, backend in PEERS.items():
        try:
            with torch.nn.attention.sdpa_kernel(backend):
                o = sdpa(*(x.transpose(1, 2) for x in leaves), is_causal=causal).transpose(1, 2)

            def call(o: torch.Tensor = o) -> object:
                return torch.autograd.grad(o, leaves, d_o, retain_graph=True)

            call()
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(name, "refuses:", str(error).splitlines()[0][:80])
        else:
            found[name] = call
    return found


def calls(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, d_o: torch.Tensor, causal: bool, fused: bool
) -> dict[str, Callable[[], Any]]:
    """The peers' and those of every configuration that is built."""
    found = peers([x.detach().clone().requires_grad_() for x in (q, k, v)], d_o, causal)
    attend: Any = flash_attention.flash_attn_func
    o, lse, _ = attend(q, k, v, causal=causal, return_attn_probs=True)
    dtype = DType.from_torch_dtype(q.dtype)
    for c in flash_attention.available_kernels():
        if not c.GRADIENTS or c.SERVES or "sm90" not in c.FAMILY:
            continue
        if "fused" in c.FAMILY and not fused:
            continue
        if (c.d_head, c.dtype) == (q.shape[3], dtype):
            found[str(c)] = lambda c=c: flash_attention.backward(
                c, d_o, q, k, v, o, lse, causal=causal
            )
    return found


def print_times(d_head: int, seq_len: int, causal: bool, fused: bool) -> None:
    problem = problem_of(d_head, seq_len, causal)
    q, k, v = problem.tensors(0, "cuda")
    times = milliseconds(calls(q, k, v, torch.randn_like(q), causal, fused))
    cells = []
    for word in KINDS:
        of_kind = [(ms, name) for name, ms in times.items() if kind(name) == word]
        if of_kind:
            ms, name = min(of_kind)
            cells.append(f"{name} {problem.matmul_flop() / ms / 1e9:.0f}")
    print(f"d{d_head} {'causal' if causal else 'full'} {seq_len}: {'; '.join(cells)}", flush=True)


def print_errors(
    distribution: str, dtype: torch.dtype, d_head: int, causal: bool, fused: bool
) -> None:
    generator = torch.Generator("cuda").manual_seed(7)
    shape = (1, 1024, 4, d_head)
    q, k, v = draw(distribution, shape, shape, dtype, generator)
    d_o = torch.randn(shape, device="cuda", generator=generator).to(dtype)
    reference = attention_gradients(q, k, v, d_o, causal=causal)
    eps = DType.from_torch_dtype(dtype).eps
    cells: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    for name, call in calls(q, k, v, d_o, causal, fused).items():
        if kind(name) in cells["d_q"]:
            continue  # stages change no rounding
        got = dict(zip(NAMES, call(), strict=True))
        rule = reference.worst_rows(got)
        for n in NAMES:
            # The first causal query's gradient is 0: a relative error says nothing there.
            error = row_errors(got[n][:, 1:], reference.gradients[n][:, 1:], eps)
            cells[n][kind(name)] = f"{error.worst:.2f}/{error.mean:.3f} rule {rule[n]:.2f}"
    for n in NAMES:
        words = "; ".join(f"{word} {cell}" for word, cell in cells[n].items())
        mask = "causal" if causal else "full"
        print(f"{distribution} {str(dtype)[6:]} d{d_head} {mask} {n}: {words}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--without_fused", action="store_true")
    options = parser.parse_args()
    end, fused = time.monotonic() + options.seconds, not options.without_fused
    print("TFLOP/s, 2.5 x forward's FLOP, fp16, 16 heads: the best of each kind")
    for seq_len, d_head, causal in itertools.product((8192, 2048, 512), (128, 64), (False, True)):
        if time.monotonic() > end:
            return 3
        print_times(d_head, seq_len, causal, fused)
    print("row errors in eps, worst/mean, and the worst row by the gradients' own rule")
    for distribution, dtype, d_head, causal in itertools.product(
        ("randn", "peaked", "growing"), (torch.float16, torch.bfloat16), (128, 64), (False, True)
    ):
        if time.monotonic() > end:
            return 3
        print_errors(distribution, dtype, d_head, causal, fused)
    return 0


if __name__ == "__main__":
    sys.exit(main())
