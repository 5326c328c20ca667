"""What the rows about flash_attn_func in docs/support.md mean, as code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

import flash_attention
from flash_attention import dispatch
from flash_helpers.base.dtypes import DType
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.serving import ServeRule, attend_sequence
from flash_helpers.check.tolerance import compare
from flash_helpers.kernels.problem import AttentionProblem

from .cases import SHAPE, Computed, Provoke, draw, freed


def computed(q: Tensor, k: Tensor, v: Tensor, **others: Any) -> Computed:
    o = flash_attention.flash_attn_func(q, k, v, **others)
    assert isinstance(o, Tensor)
    reference = {"causal": others.get("causal", False), "scale": others.get("softmax_scale")}
    return o, (q, k, v), reference


def of_lengths(q_len: int, k_len: int, heads: int = 2, **others: Any) -> Computed:
    k, v = (draw((1, k_len, 1, 128)) for _ in range(2))
    return computed(draw((1, q_len, heads, 128)), k, v, **others)


def _positional() -> Computed:
    q, k, v = (draw((1, 70, 1, 128)) for _ in range(3))
    o, lse, nothing = flash_attention.flash_attn_func(
        q, k, v, 0.0, 0.3, True, (-1, -1), 0.0, None, False, True
    )
    assert lse is not None and nothing is None
    return o, (q, k, v), {"causal": True, "scale": 0.3}


def _lse() -> Computed:
    q, k, v = (draw((2, 70, 2, 128)) for _ in range(3))
    o, lse, probabilities = flash_attention.flash_attn_func(q, k, v, return_attn_probs=True)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * 128**-0.5
    torch.testing.assert_close(lse, scores.logsumexp(-1), atol=1e-4, rtol=0)
    assert probabilities is None
    return o, (q, k, v), {}


def _strided_last() -> Computed:
    q, k, v = (draw((2, 2, 128, 70)).permute(0, 3, 1, 2) for _ in range(3))
    assert all(x.stride(3) != 1 for x in (q, k, v))
    return computed(q, k, v)


def _odd_strides() -> Computed:
    q, k, v = (draw((2, 70, 2, 129))[..., :128] for _ in range(3))
    return computed(q, k, v)


def _misaligned() -> Computed:
    q, k, v = (draw((70 * 128 + 1,))[1:].view(1, 70, 1, 128) for _ in range(3))
    return computed(q, k, v)


def _negated() -> Computed:
    q, k, v = (draw() for _ in range(3))
    o, _, others = computed(q, torch._neg_view(k), v)
    return o, (q, -k, v), others


def _gradient_unused() -> Computed:
    with torch.no_grad():
        return computed(draw().requires_grad_(), draw(), draw())


FUNC_SUPPORTED: Mapping[str, Callable[[], Computed]] = {
    "positional arguments in flash-attn's order": _positional,
    "`torch.float16`, head dimension 128": lambda: computed(draw(), draw(), draw()),
    "`torch.bfloat16`, head dimension 64": lambda: computed(
        *(draw((2, 128, 2, 64), torch.bfloat16) for _ in range(3))
    ),
    "`torch.float16`, head dimension 96, `causal` (the Hopper family)": lambda: computed(
        *(draw((1, 70, 1, 96)) for _ in range(3)), causal=True
    ),
    "`torch.bfloat16`, head dimension 256 (the Hopper family)": lambda: computed(
        *(draw((1, 70, 1, 256), torch.bfloat16) for _ in range(3))
    ),
    "`torch.bfloat16`, head dimension 80: any up to 256 that is a multiple of 8": lambda: computed(
        *(draw((2, 70, 2, 80), torch.bfloat16) for _ in range(3)), causal=True
    ),
    "head dimension 36: any other up to 256": lambda: computed(
        *(draw((2, 70, 2, 36)) for _ in range(3))
    ),
    "head dimension 192 with values of 128: v of any smaller one": lambda: _narrow_values(),
    "gradients of head dimension 36 with values of 20": lambda: _gradients_of_narrow_values(),
    "any lengths": lambda: of_lengths(1, 113),
    "`causal`, more queries than keys": lambda: of_lengths(150, 63, causal=True),
    "`causal`, more keys than queries": lambda: of_lengths(63, 150, causal=True),
    "fewer KV heads than query heads": lambda: of_lengths(64, 64, heads=8),
    "k and v without keys: the output is 0": lambda: of_lengths(64, 0),
    "`return_attn_probs`: returns (out, softmax_lse, None)": _lse,
    "`softmax_scale`, any finite number": lambda: of_lengths(64, 64, softmax_scale=0.3),
    "`softmax_scale` 0: the mean of v": lambda: of_lengths(64, 64, softmax_scale=0.0),
    "`softmax_scale` below 0": lambda: of_lengths(64, 64, softmax_scale=-0.3, causal=True),
    "`deterministic`, True or False": lambda: of_lengths(64, 64, deterministic=True),
    "`window_size`: a sliding window": lambda: _ruled(ServeRule(window=(20, 3))),
    "`window_size` with `causal`": lambda: _ruled(ServeRule(causal=True, window=(20, -1))),
    "`softcap`": lambda: _ruled(ServeRule(softcap=2.0)),
    "`s_aux`: sinks": lambda: _ruled(ServeRule(), sinks=torch.randn(2)),
    "gradients with `window_size`, `softcap` and `s_aux`": lambda: _ruled_gradients(),
    "inputs that require a gradient, some of them or all": lambda: _gradients("o"),
    "gradients of `softmax_lse`": lambda: _gradients("o", "lse"),
    "a last dimension that is not contiguous": _strided_last,
    "strides that are not a multiple of 8 elements": _odd_strides,
    "an address that is not a multiple of 16 bytes": _misaligned,
    "a negated view": _negated,
    "tensors that require a gradient, under `torch.no_grad()`": _gradient_unused,
}


def _ruled(rule: ServeRule, sinks: Tensor | None = None) -> Computed:
    """Compared here with a reference that knows the rule; in the test, an output without one."""
    q, k, v = draw((1, 70, 2, 128)), draw((1, 90, 1, 128)), draw((1, 90, 1, 128))
    o = flash_attention.flash_attn_func(
        q, k, v, causal=rule.causal, window_size=rule.window, softcap=rule.softcap, s_aux=sinks
    )
    assert isinstance(o, Tensor)
    outcome = compare(o[0], attend_sequence(q[0], k[0], v[0], rule, sinks=sinks)[0])
    assert outcome.passed, outcome.describe()
    return computed(q, k, v)


def _gradients(*outputs: str) -> Computed:
    """Whatever the output is, the reference of the gradients says that they are right."""
    shapes = {"q": (1, 70, 2, 128), "k": (1, 90, 1, 128), "v": (1, 90, 1, 128)}
    q, k, v = (draw(shape).requires_grad_(name != "k") for name, shape in shapes.items())
    attend: Any = flash_attention.flash_attn_func  # whatever it returns
    o, lse, _ = attend(q, k, v, return_attn_probs=True)
    recorded = {"o": o, "lse": lse}
    outer = {name: torch.randn_like(recorded[name]) for name in outputs}
    d_q, d_v = torch.autograd.grad([recorded[name] for name in outputs], [q, v], [*outer.values()])
    inputs = q.detach(), k, v.detach()
    expected = attention_gradients(*inputs, outer["o"], d_lse=outer.get("lse"))
    assert expected.problem_with({"d_q": d_q, "d_v": d_v}) == ""
    return o.detach(), inputs, {}


def _narrow_values() -> Computed:
    """Compared with values that are filled up, as the output is."""
    q, k, v = draw((1, 70, 2, 192)), draw((1, 90, 1, 192)), draw((1, 90, 1, 128))
    o, _, _ = computed(q, k, v)
    return pad(o, (0, 64)), (q, k, pad(v, (0, 64))), {}


def _gradients_of_narrow_values() -> Computed:
    q, k, v = (draw(shape) for shape in ((1, 40, 2, 36), (1, 50, 1, 36), (1, 50, 1, 20)))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    o, _, _ = computed(leaves[0], leaves[1], leaves[2])
    d_o = torch.randn_like(o)
    d_q, d_k, d_v = torch.autograd.grad(o, leaves, d_o)
    wide_v, wide_d_o = pad(v, (0, 16)), pad(d_o, (0, 16))
    expected = attention_gradients(q, k, wide_v, wide_d_o)
    assert expected.problem_with({"d_q": d_q, "d_k": d_k, "d_v": pad(d_v, (0, 16))}) == ""
    return pad(o.detach(), (0, 16)), (q, k, wide_v), {}


def _ruled_gradients() -> Computed:
    q, k, v = (draw(shape) for shape in ((1, 40, 2, 64), (1, 50, 1, 64), (1, 50, 1, 64)))
    rule, sinks = ServeRule(window=(20, 5), softcap=2.0), torch.randn(2)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    attend: Any = flash_attention.flash_attn_func
    o = attend(*leaves, window_size=(20, 5), softcap=2.0, s_aux=sinks)
    d_o = torch.randn_like(o)
    found = dict(zip(("d_q", "d_k", "d_v"), torch.autograd.grad(o, leaves, d_o), strict=True))
    expected = attention_gradients(q, k, v, d_o, served=rule, sinks=sinks)
    assert expected.problem_with(found) == ""
    return computed(q, k, v)


def call(**replaced: Any) -> Provoke:
    """flash_attn_func() with good arguments but those replaced; functions are called."""

    def provoke(_: pytest.MonkeyPatch) -> object:
        arguments: dict[str, Any] = {name: draw() for name in "qkv"}
        arguments |= {n: value() if callable(value) else value for n, value in replaced.items()}
        return flash_attention.flash_attn_func(**arguments)

    return provoke


def _not_built(monkeypatch: pytest.MonkeyPatch) -> object:
    def nothing(*_: object, **__: object) -> object:
        raise LookupError

    monkeypatch.setattr(dispatch, "tuned_config", nothing)
    monkeypatch.setattr(dispatch, "available_kernels", list)
    return call()(monkeypatch)


def _old_gpu(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    problem = AttentionProblem.self_attention(DType.FP16, 1, 64, 1, 128)
    return dispatch.choose(problem, torch.device("cuda", 0))


FUNC_REFUSED: Mapping[str, Provoke] = {
    "dropout": call(dropout_p=0.1),
    "`softcap` below 0": call(softcap=-30.0),
    "`window_size` that is not two ints": call(window_size=128),
    "ALiBi": call(alibi_slopes=lambda: torch.ones(1)),
    "a head dimension above 256": call(**dict.fromkeys("qkv", lambda: draw((1, 64, 1, 264)))),
    "a head dimension of 0": call(**dict.fromkeys("qkv", lambda: draw((1, 64, 1, 0)))),
    "fp32, fp64, fp8 or integers": call(**dict.fromkeys("qkv", lambda: draw().float())),
    "causal is not a bool": call(causal=1),
    "q is not a tensor": call(q=[1.0], return_attn_probs=True),
    "k is not a tensor": call(k=None),
    "not four dimensions": call(q=lambda: draw((64, 1, 128)), return_attn_probs=True),
    "dtypes that differ": call(k=lambda: draw(dtype=torch.bfloat16)),
    "head dimensions of q and k that differ": call(k=lambda: draw((1, 64, 1, 64))),
    "values that are wider than keys": call(**dict.fromkeys("qk", lambda: draw((1, 64, 1, 64)))),
    "k and v of different shapes": call(v=lambda: draw((1, 128, 1, 128))),
    "batch sizes that differ": call(**dict.fromkeys("kv", lambda: draw((2, 64, 1, 128)))),
    "query heads that are not a multiple of the KV heads": call(
        **dict.fromkeys("kv", lambda: draw((1, 64, 2, 128)))
    ),
    "no KV heads": call(**dict.fromkeys("kv", lambda: draw((1, 64, 0, 128)))),
    "tensors on different devices": call(k=lambda: draw(device="meta")),
    "a device other than CUDA and CPU": call(
        **dict.fromkeys("qkv", lambda: torch.empty(SHAPE, dtype=torch.float16, device="meta"))
    ),
    "sparse or jagged tensors": call(k=lambda: draw().to_sparse()),
    "a tensor whose memory was freed": call(k=freed),
    "softmax_scale NaN or infinite": call(softmax_scale=float("-inf")),
    "a length above 2^31 - 1025": call(
        **dict.fromkeys("kv", lambda: draw((1, 1, 1, 128)).expand(-1, 2**31 - 1, -1, -1))
    ),
    "a build without a kernel for the problem": _not_built,
    "a GPU older than compute capability 8.0": _old_gpu,
}
