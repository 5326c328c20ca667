"""The reference of gradients, and its rule: what it lets through and what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernel_configs import DType

Tensors = tuple[torch.Tensor, ...]


def draw(dtype: torch.dtype, seqlen_q: int = 40, seqlen_k: int = 60) -> Tensors:
    generator = torch.Generator().manual_seed(seqlen_q)
    shapes = [
        (2, seqlen_q, 4, 64),
        (2, seqlen_k, 2, 64),
        (2, seqlen_k, 2, 64),
        (2, seqlen_q, 4, 64),
    ]
    return tuple(torch.randn(s, generator=generator, dtype=dtype) for s in shapes)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output and the log-sum-exp by operations that autograd knows."""
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    if causal:
        hidden = torch.ones(scores.shape[2:]).tril(k.shape[1] - q.shape[1]) == 0
        scores = scores.masked_fill(hidden, -math.inf)
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0)[..., None]).exp()
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse


@pytest.mark.parametrize(("seqlen_q", "seqlen_k", "causal"), [
    (40, 60, False), (40, 60, True), (60, 60, True), (60, 40, True),
])  # fmt: skip
@pytest.mark.parametrize("with_lse", [False, True])
def test_the_reference_is_what_autograd_says(
    seqlen_q: int, seqlen_k: int, causal: bool, with_lse: bool
) -> None:
    q, k, v, d_o = draw(torch.float64, seqlen_q, seqlen_k)
    d_lse = torch.randn(2, 4, seqlen_q, dtype=torch.float64) if with_lse else None
    inputs = [x.requires_grad_() for x in (q, k, v)]
    o, lse = attention(q, k, v, causal)
    total = (o * d_o).sum()
    if d_lse is not None:
        total = total + (lse * d_lse).masked_fill(lse == -math.inf, 0).sum()
    expected = torch.autograd.grad(total, inputs)
    q, k, v = (x.detach() for x in inputs)
    found = attention_gradients(q, k, v, d_o, d_lse=d_lse, causal=causal, dtype=DType.FP16)
    for name, wanted in zip(("d_q", "d_k", "d_v"), expected, strict=True):
        torch.testing.assert_close(found.gradients[name], wanted)


def honest(
    tensors: Tensors, causal: bool, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Gradients as a kernel computes them, in fp64 but for roundings to 16 bits. `change` makes dS
    of P and dP - D."""
    q, k, v, d_o = (x.double() for x in tensors)
    dtype = tensors[0].dtype
    k, v = (x.repeat_interleave(2, dim=2) for x in (k, v))
    o, lse = attention(q, k, v, causal)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 8
    weights = (scores - lse[..., None]).exp()
    if causal:
        weights *= torch.ones(weights.shape[2:]).tril(k.shape[1] - q.shape[1])
    dots = (o.to(dtype).double() * d_o).sum(-1).transpose(1, 2)[..., None]
    d_scores = change(weights, torch.einsum("bqhd,bkhd->bhqk", d_o, v) - dots)
    d_scores = d_scores.to(dtype).double()
    d_q = torch.einsum("bhqk,bkhd->bqhd", d_scores, k) / 8
    d_k = torch.einsum("bhqk,bqhd->bkhd", d_scores, q) / 8
    d_v = torch.einsum("bhqk,bqhd->bkhd", weights.to(dtype).double(), d_o)
    d_k, d_v = (x.unflatten(2, (2, 2)).sum(3) for x in (d_k, d_v))  # type: ignore[no-untyped-call]
    return {"d_q": d_q.to(dtype), "d_k": d_k.to(dtype), "d_v": d_v.to(dtype)}


def without_a_block(p: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    d_s = p * d
    d_s[..., 16:32] = 0
    return d_s


MUTANTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a scale that is 2 % off": lambda p, d: 1.02 * p * d,
    "a block left out": without_a_block,
    "a weight too large": lambda p, d: 1.1 * p * d + 0.1 * p,
    "NaN": lambda p, d: p * d + math.nan,
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DType)
def test_the_rule(dtype: DType, causal: bool) -> None:
    tensors = draw(dtype.to_torch_dtype())
    q, k, v, d_o = tensors
    reference = attention_gradients(q, k, v, d_o, causal=causal)
    found = honest(tensors, causal, lambda p, d: p * d)
    assert reference.problem_with(found) == ""
    assert all(0.1 < worst <= 1 for worst in reference.worst_rows(found).values())
    for name, change in MUTANTS.items():
        assert reference.problem_with(honest(tensors, causal, change)), name


@pytest.mark.parametrize("dtype", DType)
def test_the_rule_of_one_query(dtype: DType) -> None:
    """Each row of dK has the rounding of two numbers, which nothing averages; of 4,000 rows, the
    worst."""
    tensors = draw(dtype.to_torch_dtype(), seqlen_q=1, seqlen_k=2000)
    q, k, v, d_o = tensors
    reference = attention_gradients(q, k, v, d_o)
    found = honest(tensors, False, lambda p, d: p * d)
    assert reference.problem_with(found) == ""
    assert reference.worst_rows(found)["d_k"] > 0.6
    rounded = honest(tensors, False, lambda p, d: p.to(q.dtype).double() * d)
    assert reference.worst_rows(rounded)["d_k"] > 1
    for name, change in MUTANTS.items():
        assert reference.worst_rows(honest(tensors, False, change))["d_k"] > 1.5, name


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("n_keys", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.3, -0.3])
def test_the_rule_of_a_sink_and_few_keys(dtype: DType, n_keys: int, scale: float) -> None:
    """A pass in fp64 that rounds O, dS and dQ is right, and one whose scale is 3 % off is not: a
    term that makes up a row may be rounded by all of eps."""
    rounded, sinks = dtype.to_torch_dtype(), torch.zeros(1)
    generator = torch.Generator().manual_seed(n_keys)
    q, k, v, d_o = (
        torch.randn(1, n, 1, 64, generator=generator).to(rounded)
        for n in (2000, n_keys, n_keys, 2000)
    )
    reference = attention_gradients(q, k, v, d_o, served=ServeRule(scale=scale), sinks=sinks)
    queries, keys, values, outer = (x[0, :, 0].double() for x in (q, k, v, d_o))
    scores = scale * queries @ keys.T
    lse = torch.logaddexp(scores.logsumexp(dim=1), sinks.double())
    weights = (scores - lse[:, None]).exp()
    dots = (outer * (weights @ values).to(rounded).double()).sum(dim=1, keepdim=True)
    d_scores = (weights * (outer @ values.T - dots)).to(rounded).double()
    d_q = scale * d_scores @ keys
    for factor, right in ((1.0, True), (1.03, False)):
        worst = reference.worst_rows({"d_q": (factor * d_q).to(rounded)[None, :, None]})["d_q"]
        assert (worst <= 1) is right, (factor, worst)


def test_a_row_that_must_be_zero_must_be_exactly() -> None:
    q, k, v, d_o = draw(torch.float16, 60, 40)
    reference = attention_gradients(q, k, v, d_o, causal=True)
    found = {name: x.half() for name, x in reference.gradients.items()}
    assert reference.problem_with(found) == ""
    found["d_q"][:, 3, 1, 5] = 6e-8
    assert reference.worst_rows(found)["d_q"] == math.inf
    with pytest.raises(ValueError, match="d_k has shape"):
        reference.worst_rows({"d_k": found["d_q"]})
