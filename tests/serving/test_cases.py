"""The cases at the edges: which rows see nothing, what must not matter, what must be the same."""

from __future__ import annotations

import math
import mmap
from typing import Any

import pytest
import torch

import flash_attention
from flash_helpers.check.serving import ServeRule
from tests.serving.problems import NAN, Batch, ints, same_bits, stacked

CAUSAL = ServeRule(causal=True)


def test_case_01_a_row_without_a_key() -> None:
    """Without keys at all, with more queries than keys, and with a sink."""
    for sinks in (None, torch.tensor([0.5, -1.0, 3.0, 0.0])):
        batch = Batch([3, 20, 1], [0, 4, 0], CAUSAL, sinks=sinks)
        results = batch.packed()
        batch.check(results)
        for i, blind in ((0, 3), (1, 16), (2, 1)):
            o, lse = results[i]
            assert not o[:blind].any()
            expected = torch.full((4,), -math.inf) if sinks is None else sinks
            torch.testing.assert_close(lse[:, :blind], expected[:, None].expand(4, blind))


def test_case_02_a_window_to_the_right_of_the_last_keys() -> None:
    batch = Batch([10], [2], ServeRule(window=(-1, 2)), heads=1, kv_heads=1)
    (o, lse), = results = batch.packed()  # fmt: skip
    batch.check(results)
    assert not o[:6].any() and torch.isinf(lse[:, :6]).all()
    assert torch.equal(o[6], batch.v[0][0])
    assert torch.isfinite(lse[:, 6:]).all()


@pytest.mark.parametrize(
    ("rule", "same"),
    [
        (ServeRule(window=(69, 0)), CAUSAL),
        (ServeRule(causal=True, window=(69, 0)), CAUSAL),
        (ServeRule(causal=True, window=(7, 7)), ServeRule(window=(7, 0))),
        (ServeRule(causal=True, window=(-1, 5)), CAUSAL),
        (ServeRule(window=(2**31 - 1, 2**31 - 1)), ServeRule()),
    ],
    ids=str,
)
def test_case_03_windows_that_are_the_same(rule: ServeRule, same: ServeRule) -> None:
    assert same_bits(Batch([40], [70], rule).packed(), Batch([40], [70], same).packed())


def test_case_04_causal_with_one_query_is_full() -> None:
    assert same_bits(Batch([1], [70], CAUSAL).packed(), Batch([1], [70]).packed())


def test_case_05_sequences_without_queries() -> None:
    for n in (5, 130):  # one tile, and several
        batch = Batch([0, n, 0, 0, 3, 0], [7, n, 0, 70, 9, 3], CAUSAL)
        batch.check(batch.packed())
    Batch([0, 0], [7, 5]).check(Batch([0, 0], [7, 5]).packed())
    empty = torch.empty(0, 4, 64, dtype=torch.float16)
    for starts in ([0], [0, 0]):
        found: Any = flash_attention.flash_attn_varlen_func(
            empty, empty, empty, ints(starts), ints(starts), return_softmax_lse=True
        )
        o, lse = found
        assert o.shape == (0, 4, 64) and lse.shape == (4, 0)


@pytest.mark.parametrize("n", [31, 32, 34, 70])
def test_case_06_many_empty_sequences(n: int) -> None:
    lengths = [0] * n
    for i in (0, n // 2, n - 1):
        lengths[i] = 2
    batch = Batch(lengths, [5] * n, CAUSAL, heads=8)
    batch.check(batch.packed())
    batch.check(batch.packed(num_splits=1))  # the kernel of prompts, which searches for its tiles


@pytest.mark.parametrize("page", [1, 8, 24])
@pytest.mark.parametrize("rule", [CAUSAL, ServeRule(window=(9, 0))], ids=str)
def test_case_07_what_nobody_sees_has_no_effect(page: int, rule: ServeRule) -> None:
    """NaN in every key that no query sees, in the rest of pages and buffers; wild table entries."""
    batch = Batch([2, 2], [70, 33], rule, leftpad=[5, 0])
    batch.check(batch.paged(page))
    batch.check(batch.cached(80))
    batch.check(batch.packed())
    batch.check(batch.paged(page, num_splits=3))


def test_case_08_a_nan_stays_in_its_sequence() -> None:
    batch = Batch([3, 3, 3], [20, 20, 20], CAUSAL)
    batch.k[1][18] = NAN
    results = batch.packed()
    for i in (0, 2):
        assert torch.isfinite(results[i][0]).all()
    assert torch.isfinite(results[1][1][:, :1]).all()  # the first query does not see it
    assert results[1][0][1:].isnan().all() and results[1][1][:, 1:].isnan().all()


def test_case_09_hints_do_not_matter() -> None:
    batch = Batch([5, 40], [70, 9], CAUSAL)
    results = [
        batch.packed(max_seqlen_q=hint, max_seqlen_k=hint)
        for hint in (None, 0, 1, 40, 10**9, torch.tensor(3))
    ]
    assert all(same_bits(results[0], other) for other in results[1:])


@pytest.mark.parametrize("sink", [100.0, -math.inf])
def test_case_11_extreme_sinks(sink: float) -> None:
    plain = Batch([4], [70], CAUSAL)
    batch = Batch([4], [70], CAUSAL, sinks=torch.full((4,), sink))
    (o, lse), = results = batch.packed()  # fmt: skip
    if sink > 0:
        assert o.abs().max() < 1e-6
        assert torch.equal(lse, torch.full_like(lse, sink))
    else:
        assert same_bits(results, plain.packed())


def test_case_12_a_soft_cap_on_large_scores() -> None:
    rule = ServeRule(causal=True, softcap=50.0, scale=1.0)
    batch = Batch([4], [70], rule)
    batch.q[0] *= 16
    batch.check(batch.packed())


def test_case_13_sequences_share_pages() -> None:
    batch = Batch([1, 1, 1], [40, 40, 40])
    for rows in (batch.k, batch.v):
        for i in (1, 2):
            rows[i][:32] = rows[0][:32]
    k, v, table = batch.pages(16)
    table[1:, :2] = table[0, :2]
    batch.check(batch.with_cache(k, v, block_table=table))


def test_case_14_far_pages() -> None:
    """A stride between pages of 2^31 elements: memory that exists in its first and last page."""
    batch = Batch([1], [8], heads=1, kv_heads=1)
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (2**31 + 8 * 64)), dtype=torch.float16)
    k = memory.as_strided((2, 8, 1, 64), (2**31, 64, 64, 1))
    k[1] = batch.k[0]
    v = batch.v[0][None]
    batch.check(batch.with_cache(k, v.expand(2, -1, -1, -1), block_table=ints([1])[None]))


def test_case_18_one_length_for_all() -> None:
    batch = Batch([2, 2], [20, 20], CAUSAL)
    assert same_bits(batch.cached(33, cache_seqlens=20), batch.cached(33))


def test_case_20_left_padding_with_pages() -> None:
    batch = Batch([3, 3], [40, 30], CAUSAL, leftpad=[17, 30])
    batch.check(batch.paged(8))


@pytest.mark.parametrize(("d", "d_v"), [(59, 59), (111, 30), (64, 59), (201, 130)])
def test_case_21_head_dimensions_that_are_filled_up(d: int, d_v: int) -> None:
    batch = Batch([5, 2], [70, 9], CAUSAL, d=d, d_v=d_v)
    batch.check(batch.packed())
    out = torch.full((12, 4, d_v), 7.0, dtype=torch.float16)
    batch.check(batch.packed(out=out))
    assert (out[:3] == 7.0).all() and (out[10:] == 7.0).all()


@pytest.mark.parametrize(("d", "d_v"), [(40, 40), (72, 72), (128, 64), (96, 8)])
def test_case_22_other_head_dimensions(d: int, d_v: int) -> None:
    batch = Batch([5, 2], [70, 9], CAUSAL, d=d, d_v=d_v)
    batch.check(batch.packed())
    batch.check(batch.packed(num_splits=2))


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("queries", [[1, 2, 1], [1, 90, 1]])
def test_case_23_a_sequence_has_the_same_bits_in_every_batch(
    num_splits: int, queries: list[int]
) -> None:
    """Also beside a prompt, which has larger tiles by itself, with fewer keys in a block."""
    batch = Batch(queries, [300, 130, 7], CAUSAL, heads=8)
    together = batch.packed(num_splits=num_splits)
    for i in range(3):
        alone = Batch([batch.queries[i]], [batch.keys[i]], CAUSAL, heads=8)
        alone.q, alone.k, alone.v = [batch.q[i]], [batch.k[i]], [batch.v[i]]
        assert same_bits(alone.packed(num_splits=num_splits), together[i : i + 1])


def test_case_24_the_same_bits_each_time() -> None:
    batch = Batch([1, 1], [900, 130], heads=8, d=128)
    results = [batch.paged(16) for _ in range(3)]
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])


def test_case_25_an_output_with_strides() -> None:
    batch = Batch([5], [5], CAUSAL, kv_heads=4)
    wide = torch.full((10, 4, 72), 7.0, dtype=torch.float16)
    q, starts = stacked(batch.q)
    k, key_starts = stacked(batch.k)
    v, _ = stacked(batch.v)
    arguments = (q, k, v, starts, key_starts)
    o = flash_attention.flash_attn_varlen_func(*arguments, causal=True, out=wide[..., :64])
    assert isinstance(o, torch.Tensor) and o.data_ptr() == wide.data_ptr()
    plain = flash_attention.flash_attn_varlen_func(*arguments, causal=True)
    assert isinstance(plain, torch.Tensor)
    assert torch.equal(o[3:8], plain[3:8])
    untouched = torch.ones_like(wide, dtype=torch.bool)
    untouched[3:8, :, :64] = False
    assert (wide[untouched] == 7.0).all()  # rows outside of the sequences, and between heads
    for name, operand in (("q", q), ("k", k)):
        with pytest.raises(ValueError, match=f"out shares memory with {name}"):
            flash_attention.flash_attn_varlen_func(*arguments, out=operand)


def test_case_26_rows_that_are_not_used_stay() -> None:
    batch = Batch([5, 6], [9, 9])
    q, starts = stacked(batch.q)
    k, key_starts = stacked(batch.k)
    v, _ = stacked(batch.v)
    out = torch.full_like(q, 7.0)
    flash_attention.flash_attn_varlen_func(
        q, k, v, starts, key_starts, out=out, seqused_q=ints([3, 0]), num_splits=2
    )
    written = torch.zeros(len(out), dtype=torch.bool)
    written[3:6] = True
    assert (out[~written] == 7.0).all() and torch.isfinite(out[written]).all()


def test_rows_without_any_sequence_stay() -> None:
    """And have gradients of 0."""
    q, k, none = torch.randn(5, 2, 64).half(), torch.randn(7, 1, 64).half(), ints([0])
    out = torch.full_like(q, 7.0)
    flash_attention.flash_attn_varlen_func(q, k, k, none, none, 0, 0, out=out)
    assert (out == 7.0).all()
    q.requires_grad_(), k.requires_grad_()
    o = flash_attention.flash_attn_varlen_func(q, k, k, none, none, 0, 0)
    assert isinstance(o, torch.Tensor)
    assert all((x == 0).all() for x in torch.autograd.grad(o, (q, k), torch.ones_like(q)))


def test_case_27_no_gradients_of_a_cache() -> None:
    batch = Batch([5], [9])
    batch.q[0].requires_grad_()
    with pytest.raises(ValueError, match="q requires a gradient"):
        batch.cached(9)
