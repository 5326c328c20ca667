"""What the rows of docs/support.md mean, as code: what forward supports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import flash_attention
from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig, get_sm80_kernel_configs

from .cases import CONFIG, Computed, draw

D64 = next(c for c in get_sm80_kernel_configs("pairs") if (c.dtype, c.d_head) == (DType.BF16, 64))


def computed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    config: FlashForwardKernelConfig = CONFIG,
    softmax_scale: float | None = None,
    causal: bool = False,
    **others: Any,
) -> Computed:
    o = flash_attention.forward(
        config, q, k, v, softmax_scale=softmax_scale, causal=causal, **others
    )
    return o, (q, k, v), {"scale": softmax_scale, "causal": causal}


def _d64() -> Computed:
    shape = (2, 2 * max(D64.B_r, D64.B_c), 2, 64)
    return computed(*(draw(shape, torch.bfloat16) for _ in range(3)), config=D64)


def _head_major() -> Computed:
    q, k, v = (draw((2, 3, 64, 128)).transpose(1, 2) for _ in range(3))
    return computed(q, k, v)


def _packed() -> Computed:
    q, k, v = draw((2, 128, 3, 2, 128)).unbind(2)
    return computed(q, k, v)


def _padded() -> Computed:
    q, k, v = (draw((2, 64, 2, 136))[..., :128] for _ in range(3))
    return computed(q, k, v)


def _strided_output() -> Computed:
    o = draw((1, 2, 64, 136)).transpose(1, 2)[..., :128]
    q, k, v = (draw((1, 64, 2, 128)) for _ in range(3))
    assert flash_attention.forward(CONFIG, q, k, v, o) is o
    return o, (q, k, v), {}


def _lse() -> Computed:
    q, k, v = (draw((2, 64, 2, 128)) for _ in range(3))
    lse = torch.full((2, 2, 64), float("nan"))
    outcome = computed(q, k, v, softmax_scale=0.3, lse=lse)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * 0.3
    torch.testing.assert_close(lse, scores.logsumexp(-1), atol=1e-4, rtol=0)
    return outcome


def causal(q_len: int, k_len: int) -> Computed:
    """In numpy's words, not the reference's: the last query sees the last key."""
    q, k, v = draw((1, q_len, 2, 128)), draw((1, k_len, 1, 128)), draw((1, k_len, 1, 128))
    lse = torch.full((1, 2, q_len), float("nan"))
    outcome = computed(q, k, v, causal=True, lse=lse)
    scores = torch.einsum("bqhd,bkgd->bhqk", q.float(), k.float()) * 128**-0.5
    seen = torch.ones(q_len, k_len, dtype=torch.bool).tril(k_len - q_len)
    torch.testing.assert_close(
        lse, scores.masked_fill(~seen, -float("inf")).logsumexp(-1), atol=1e-4, rtol=0
    )
    return outcome


def _no_keys() -> Computed:
    q, k = draw((2, 70, 2, 128)), draw((2, 0, 1, 128))
    lse = torch.full((2, 2, 70), float("nan"))
    outcome = computed(q, k, k, lse=lse)
    assert bool((lse == -float("inf")).all())
    return outcome


def _gradient_unused() -> Computed:
    with torch.no_grad():
        return computed(draw().requires_grad_(), draw(), draw())


def _not_finite() -> Computed:
    q, k, v = (draw((1, 128, 1, 128)) for _ in range(3))
    q[0, 3, 0, 0] = float("nan")
    k[0, 5, 0, 7] = float("inf")  # scores of both signs: NaN for half of the rows
    return computed(q, k, v)


SUPPORTED: Mapping[str, Callable[[], Computed]] = {
    "`torch.float16`, d_head 128": lambda: computed(*(draw((2, 128, 2, 128)) for _ in range(3))),
    "`torch.bfloat16`, d_head 64": _d64,
    "any lengths, also 1, of q and k each": lambda: computed(
        draw((1, 113, 1, 128)), draw((1, 1, 1, 128)), draw((1, 1, 1, 128))
    ),
    "k and v without keys: the output is 0, `lse` -inf": _no_keys,
    "`causal`, more queries than keys": lambda: causal(200, 113),
    "`causal`, more keys than queries": lambda: causal(63, 203),
    "fewer KV heads than query heads (GQA, MQA), the one a divisor of the other": lambda: computed(
        draw((1, 64, 6, 128)), draw((1, 64, 2, 128)), draw((1, 64, 2, 128))
    ),
    "heads before the sequence in memory (a transposed view)": _head_major,
    "packed QKV views": _packed,
    "rows padded to a multiple of 8 elements": _padded,
    "k and v expanded over the batch (stride 0)": lambda: computed(
        draw((2, 64, 1, 128)), draw().expand(2, -1, -1, -1), draw().expand(2, -1, -1, -1)
    ),
    "an output with strides of its own": _strided_output,
    "`softmax_scale`, any finite number": lambda: computed(
        draw(), draw(), draw(), softmax_scale=0.3
    ),
    "`softmax_scale` 0: the mean of v": lambda: computed(draw(), draw(), draw(), softmax_scale=0.0),
    "`softmax_scale` below 0": lambda: computed(draw(), draw(), draw(), softmax_scale=-0.3),
    "`lse`": _lse,
    "a tensor subclass without gradient (`torch.nn.Parameter`)": lambda: computed(
        torch.nn.Parameter(draw(), requires_grad=False), draw(), draw()
    ),
    "tensors that require a gradient, under `torch.no_grad()`": _gradient_unused,
    "inf and NaN among the inputs: NaN exactly where the formula has it": _not_finite,
}
