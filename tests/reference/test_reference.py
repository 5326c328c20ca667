"""The reference is right: against formulas written differently, and against PyTorch's own."""

from __future__ import annotations

import math

import pytest
import torch

from flash_helpers.check import reference
from flash_helpers.check.reference import attention_reference
from tests.reference.fa2_rule import attention_low_precision


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_hand(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Element by element, in Python floats. Causal: the last query sees all keys, the one before it
    all but the last, and so on."""
    batch, seqlen_q, n_heads, d_head = q.shape
    group = n_heads // k.shape[2]
    o = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.zeros((batch, n_heads, seqlen_q), dtype=torch.float64)
    for b in range(batch):
        for h in range(n_heads):
            for i in range(seqlen_q):
                keys, values = k[b, :, h // group].tolist(), v[b, :, h // group].tolist()
                n_visible = max(0, len(keys) - (seqlen_q - 1 - i)) if causal else len(keys)
                keys, values = keys[:n_visible], values[:n_visible]
                if not keys:
                    lse[b, h, i] = -math.inf
                    continue
                query = q[b, i, h].tolist()
                scores = [
                    scale * sum(x * y for x, y in zip(query, key, strict=True)) for key in keys
                ]
                total = sum(math.exp(s) for s in scores)
                lse[b, h, i] = math.log(total)
                for c in range(d_head):
                    weighted = (
                        math.exp(s) * value[c] for s, value in zip(scores, values, strict=True)
                    )
                    o[b, i, h, c] = sum(weighted) / total
    return o, lse


@pytest.mark.parametrize(("seqlen_k", "kv_heads"), [(5, 4), (7, 2), (3, 1)])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_against_the_definition(seqlen_k: int, kv_heads: int, scale: float | None) -> None:
    q, k, v = (
        draw(2, 5, 4, 8),
        draw(2, seqlen_k, kv_heads, 8, seed=1),
        draw(2, seqlen_k, kv_heads, 8, seed=2),
    )
    expected_o, expected_lse = by_hand(q, k, v, 8**-0.5 if scale is None else scale)
    for fp64, tolerance in ((False, 1e-6), (True, 1e-12)):
        o, lse = attention_reference(q, k, v, scale, fp64=fp64)
        assert o.dtype == lse.dtype == (torch.float64 if fp64 else torch.float32)
        assert torch.allclose(o.double(), expected_o, rtol=0, atol=tolerance)
        assert torch.allclose(lse.double(), expected_lse, rtol=0, atol=3 * tolerance)


@pytest.mark.parametrize("seqlen_k", [1, 2, 5, 6, 9], ids=lambda n: f"5x{n}")
@pytest.mark.parametrize("rows_at_a_time", [None, 1, 2])
def test_causal_against_the_definition(
    seqlen_k: int, rows_at_a_time: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer, as many and more keys than the 5 queries; also where rows that see nothing, and the
    first that sees something, lie in different chunks."""
    q, k, v = (draw(2, 5, 4, 8), *(draw(2, seqlen_k, 2, 8, seed=s) for s in (1, 2)))
    if rows_at_a_time:
        monkeypatch.setattr(reference, "MAX_SCORE_BYTES", rows_at_a_time * seqlen_k * 8)
    expected_o, expected_lse = by_hand(q, k, v, 0.7, causal=True)
    for fp64, tolerance in ((False, 1e-6), (True, 1e-12)):
        o, lse = attention_reference(q, k, v, 0.7, fp64=fp64, causal=True)
        assert torch.allclose(o.double(), expected_o, rtol=0, atol=tolerance)
        assert torch.allclose(lse.double(), expected_lse, rtol=0, atol=3 * tolerance)
    n_blind = max(0, 5 - seqlen_k)
    assert (o[:, :n_blind] == 0).all() and (lse[:, :, :n_blind] == -math.inf).all()
    assert lse[:, :, n_blind:].isfinite().all()


@pytest.mark.parametrize(
    ("seqlen_q", "means"),
    [
        # The values are 1, 2, 4, 8; equal scores make each output the mean of what a row sees.
        (1, [15 / 4]),
        (2, [7 / 3, 15 / 4]),
        (4, [1, 3 / 2, 7 / 3, 15 / 4]),
        (6, [0, 0, 1, 3 / 2, 7 / 3, 15 / 4]),
    ],
)
def test_causal_means(seqlen_q: int, means: list[float]) -> None:
    v = torch.tensor([1.0, 2.0, 4.0, 8.0]).view(1, 4, 1, 1).expand(1, 4, 1, 8)
    o, lse = attention_reference(draw(1, seqlen_q, 1, 8), torch.zeros_like(v), v, causal=True)
    assert torch.allclose(o[0, :, 0], torch.tensor(means).view(-1, 1).expand(-1, 8))
    visible = torch.tensor([max(0, 4 - seqlen_q + 1 + i) for i in range(seqlen_q)])
    assert torch.allclose(lse[0, 0], visible.log())


def test_against_pytorch_with_16_bit_inputs() -> None:
    q, k, v = (draw(2, 64, 4, 32, dtype=torch.bfloat16, seed=s) for s in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    heads_first = [x.double().transpose(1, 2) for x in (q, k, v)]
    expected = attention(heads_first[0], heads_first[1], heads_first[2]).transpose(1, 2)
    assert torch.allclose(attention_reference(q, k, v)[0].double(), expected, atol=1e-6, rtol=0)


def test_rows_are_chunked_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (draw(1, 50, 2, 8, seed=s) for s in range(3))
    whole = attention_reference(q, k, v, fp64=True)
    monkeypatch.setattr(reference, "MAX_SCORE_BYTES", 7 * 50 * 8)  # seven rows at a time
    sizes = {rows.stop - rows.start for _, _, rows in reference.chunks(1, 2, 50, 50, 8)}
    assert sizes == {7, 1}
    for chunked, expected in zip(attention_reference(q, k, v, fp64=True), whole, strict=True):
        assert torch.allclose(chunked, expected, rtol=0, atol=1e-14)


def test_large_logits_do_not_overflow() -> None:
    q = torch.full((1, 2, 1, 8), 200.0)
    k = torch.stack([torch.full((8,), x) for x in (200.0, -200.0)]).view(1, 2, 1, 8)
    v = torch.tensor([1.0, -1.0]).view(1, 2, 1, 1).expand(1, 2, 1, 8)
    o, lse = attention_reference(q, k, v)
    assert (o == 1).all() and lse.isfinite().all()


def test_without_keys_the_output_is_zero() -> None:
    q, empty = draw(1, 3, 2, 8), torch.empty(1, 0, 2, 8)
    o, lse = attention_reference(q, empty, empty)
    assert (o == 0).all() and (lse == -math.inf).all()


def test_global_precision_is_left_as_it_was() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        q = draw(1, 4, 1, 8)
        attention_reference(q, q, q)
        assert torch.get_float32_matmul_precision() == "high"
        with reference.full_precision("cpu"):
            assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((1, 4, 2), (1, 4, 2, 8), (1, 4, 2, 8)),
        ((1, 4, 2, 8), (1, 4, 2, 8), (1, 5, 2, 8)),
        ((2, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8)),
        ((1, 4, 2, 8), (1, 4, 2, 16), (1, 4, 2, 16)),
        ((1, 4, 3, 8), (1, 4, 2, 8), (1, 4, 2, 8)),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="got q \\(") as error:
        attention_reference(torch.zeros(q), torch.zeros(k), torch.zeros(v))
    assert f"k {k}" in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_the_same_formula_rounded(dtype: torch.dtype) -> None:
    q, k, v = (draw(1, 64, 2, 32, dtype=dtype, seed=s) for s in range(3))
    naive, exact = attention_low_precision(q, k, v), attention_reference(q, k, v)[0]
    eps = torch.finfo(dtype).eps
    error = float((naive.float() - exact).abs().max())
    assert naive.dtype == dtype and 0 < error < 8 * eps
