"""MLA: keys of 576 elements whose first 512 are their values, in every kernel and layout."""

from __future__ import annotations

import math
import mmap
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.serving import launch, splits
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.contract import KernelConfig
from tests.serving.latent import VALUE, D, LatentBatch
from tests.serving.problems import EVERYTHING, NAN, WILD, ints, same_bits

CAUSAL = ServeRule(causal=True)


@pytest.mark.parametrize("config", get_kernel_configs("mla"), ids=str)
def test_every_kernel(monkeypatch: pytest.MonkeyPatch, config: KernelConfig) -> None:
    """With everything that a call can ask for, and pieces of tiles: more tiles than thread blocks,
    and more thread blocks than tiles."""
    monkeypatch.setattr(launch, "choose", lambda call: config)
    for n_blocks in (2, 9):
        monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", n_blocks)
        batch = LatentBatch(
            [1, 5, 1], [200, 65, 19], EVERYTHING, heads=6, dtype=config.dtype.to_torch_dtype(),
            leftpad=[160, 0, 0], sinks=torch.randn(6),
        )  # fmt: skip
        batch.check(batch.packed())


@pytest.mark.parametrize(
    ("heads", "queries"), [(1, 1), (5, 3), (16, 1), (20, 1), (64, 1), (71, 1), (128, 1), (8, 16)]
)
def test_heads_and_queries(heads: int, queries: int) -> None:
    """Rows of a tile are heads of one query or of several; several tiles read the same keys."""
    batch = LatentBatch([queries, queries], [70, queries], CAUSAL, heads=heads)
    batch.check(batch.paged(16))


@pytest.mark.parametrize("keys", [0, 1, 15, 31, 63, 64, 65, 128, 129, 300])
def test_lengths_around_blocks(keys: int) -> None:
    batch = LatentBatch([1], [keys])
    batch.check(batch.cached(max(keys, 1)))


@pytest.mark.parametrize("key", [1, 40, 63])
def test_one_key_that_outweighs_all(key: int) -> None:
    """Whichever warp has it: e^24 times the weight of others, which a 16-bit type does not hold."""
    batch = LatentBatch([1], [64], heads=1)
    batch.k[0][key] = batch.q[0][0]
    batch.check(batch.cached(64))


def test_layouts_have_the_same_bits() -> None:
    """Pages of any size, a cache, one allocation or two."""
    found = []
    for separate in (False, True):
        batch = LatentBatch([2, 2], [150, 33], CAUSAL, separate=separate)
        found += [batch.cached(160), *(batch.paged(page) for page in (1, 16, 24, 64))]
    batch.check(found[0])
    assert all(same_bits(found[0], other) for other in found[1:])


def test_several_kv_heads() -> None:
    batch = LatentBatch([1, 1], [70, 9], heads=8, kv_heads=2)
    batch.check(batch.paged(8))


@pytest.mark.parametrize("n_blocks", [1, 5, 40])
def test_any_number_of_thread_blocks(monkeypatch: pytest.MonkeyPatch, n_blocks: int) -> None:
    """One tile of many parts; many tiles of a share, with sequences without keys or queries."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", n_blocks)
    long = LatentBatch([1], [1300], sinks=torch.randn(16))
    long.check(long.packed())
    mixed = LatentBatch([1, 0, 2, 1, 1] * 7, [i * 7 % 50 for i in range(35)], CAUSAL, heads=8)
    mixed.check(mixed.packed())


def test_case_01_a_row_without_a_key() -> None:
    for sinks in (None, torch.randn(16)):
        batch = LatentBatch([3, 20], [0, 4], CAUSAL, sinks=sinks)
        results = batch.packed()
        batch.check(results)
        for i, blind in ((0, 3), (1, 16)):
            assert not results[i][0][:blind].any()
            expected = torch.full((16,), -math.inf) if sinks is None else sinks
            torch.testing.assert_close(
                results[i][1][:, :blind], expected[:, None].expand(16, blind)
            )


def test_case_01_even_beside_nan() -> None:
    """In a key that others see, whose values the rows without a key meet with weights of 0."""
    batch = LatentBatch([20], [4], CAUSAL, heads=5)
    batch.k[0][1] = NAN
    ((o, lse),) = batch.packed()
    assert not o[:16].any() and (lse[:, :16] == -math.inf).all() and o[17:].isnan().all()


def test_case_05_no_sequence_and_no_query() -> None:
    found: Any = flash_attention.flash_mla_with_kvcache(
        torch.empty(0, 1, 16, D).half(), torch.empty(3, 16, 1, D).half(),
        torch.empty(0, 2, dtype=torch.int32), ints([]), VALUE,
    )  # fmt: skip
    o, lse = found
    assert o.shape == (0, 1, 16, VALUE) and lse.shape == (0, 16, 1)


@pytest.mark.parametrize("page", [1, 24])
@pytest.mark.parametrize("rule", [CAUSAL, ServeRule(window=(9, 0))], ids=str)
def test_case_07_what_nobody_sees_has_no_effect(page: int, rule: ServeRule) -> None:
    batch = LatentBatch([2, 2], [90, 33], rule, leftpad=[5, 0])
    batch.check(batch.paged(page))
    batch.check(batch.cached(100))


def test_case_08_a_nan_stays_in_its_sequence() -> None:
    """In the latent part, where it is a value as well, and in what is rotated."""
    for column in (3, VALUE + 3):
        batch = LatentBatch([2, 2], [20, 20], CAUSAL, heads=3)
        batch.k[1][19, :, column] = NAN
        results = batch.paged(16)
        assert torch.isfinite(results[0][0]).all()
        assert torch.isfinite(results[1][1][:, 0]).all()  # the first query does not see it
        assert results[1][0][1].isnan().all() and results[1][1][:, 1].isnan().all()


def test_case_12_a_soft_cap_on_large_scores() -> None:
    batch = LatentBatch([4], [70], ServeRule(causal=True, softcap=50.0, scale=1.0))
    batch.q[0] *= 16
    batch.check(batch.packed())


def test_case_13_sequences_share_pages() -> None:
    batch = LatentBatch([1, 1], [40, 40])
    batch.k[1][:32] = batch.k[0][:32]
    k, v, table = batch.pages(16)
    table[1, :2] = table[0, :2]
    batch.check(batch.with_cache(k, v, block_table=table))


def test_case_14_far_pages() -> None:
    batch = LatentBatch([1], [8], heads=2)
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (2**31 + 8 * D)), dtype=torch.float16)
    k = memory.as_strided((2, 8, 1, D), (2**31, D, D, 1))
    k[1] = batch.k[0]
    batch.check(batch.with_cache(k, k, block_table=ints([1])[None]))


def test_case_18_one_length_for_all() -> None:
    batch = LatentBatch([2, 2], [20, 20], CAUSAL)
    assert same_bits(batch.cached(33, cache_seqlens=20), batch.cached(33))


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("heads", [8, 40])
def test_case_23_a_sequence_has_the_same_bits_in_every_batch(heads: int, num_splits: int) -> None:
    """With splits, some of them without keys, and sinks; alone, and with others."""
    sinks = torch.randn(heads)
    batch = LatentBatch([1, 2, 0, 1], [300, 130, 9, 7], CAUSAL, heads=heads, sinks=sinks)
    together = batch.packed(num_splits=num_splits)
    batch.check(together)
    for i in (0, 1, 3):
        alone = LatentBatch([batch.queries[i]], [batch.keys[i]], CAUSAL, heads=heads, sinks=sinks)
        alone.q, alone.k, alone.v = [batch.q[i]], [batch.k[i]], [batch.v[i]]
        assert same_bits(alone.paged(64, num_splits=num_splits), together[i : i + 1])


def test_case_24_the_same_bits_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 7)
    batch = LatentBatch([1, 1], [500, 130])
    results = [batch.paged(16) for _ in range(3)]
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])


def test_case_25_an_output_with_strides() -> None:
    batch = LatentBatch([3, 3], [9, 70], CAUSAL, heads=4)
    wide = torch.full((2, 3, 5, VALUE + 8), 7.0, dtype=torch.float16)
    results = batch.paged(16, out=wide[:, :, :4, :VALUE])
    batch.check(results)
    assert results[0][0].data_ptr() == wide.data_ptr()
    assert (wide[:, :, 4] == 7.0).all() and (wide[..., VALUE:] == 7.0).all()


def test_in_the_form_of_flash_mla() -> None:
    """One cache of 576 elements a key, and the default scale."""
    batch = LatentBatch([2, 2], [70, 33], CAUSAL)
    k, _, table = batch.pages(64)
    given = torch.stack(batch.q), k, table, ints(batch.keys), VALUE
    o, lse = flash_attention.flash_mla_with_kvcache(*given, "metadata", "splits", causal=True)
    assert same_bits(list(zip(o, lse, strict=True)), batch.paged(64))
    scaled, _ = flash_attention.flash_mla_with_kvcache(*given, softmax_scale=D**-0.5, causal=True)
    assert torch.equal(scaled, o)


def test_negative_scales_and_strides_of_queries() -> None:
    batch = LatentBatch([2], [33], CAUSAL)
    plain = batch.paged(16)
    batch.q[0] = -batch.q[0]
    assert same_bits(plain, batch.paged(16, softmax_scale=-(D**-0.5)))
    batch.q[0] = (-batch.q[0]).movedim(-1, 0).contiguous().movedim(0, -1)  # qv and q are copied
    k, v, table = batch.pages(16)
    o, lse = batch.attend(batch.q[0][None], k, v, block_table=table, cache_seqlens=ints(batch.keys))
    assert same_bits(plain, [(o[0], lse[0])])


@pytest.mark.parametrize("interleaved", [False, True])
def test_case_16_new_keys_are_rotated_and_seen(interleaved: bool) -> None:
    """The same as writing them to the cache before; nothing else changes there."""
    batch = LatentBatch([1, 1], [20, 33], CAUSAL)
    k, v, table = batch.pages(16)
    angles = torch.randn(64, 32)
    cos, sin = angles.cos().half(), angles.sin().half()
    new = torch.randn(2, 1, 1, D).half()
    expected_k = k.clone()
    places = [(int(table[i, (n - 1) // 16]), (n - 1) % 16) for i, n in enumerate(batch.keys)]
    for i, (n, (page, row)) in enumerate(zip(batch.keys, places, strict=True)):
        k[page, row] = NAN
        expected_k[page, row] = new[i, 0]
        written = expected_k[page, row, :, VALUE:]
        written.copy_(rotated(written, angles[n - 1], interleaved))
    o, lse = batch.attend(
        torch.stack(batch.q), k, v, k=new[..., VALUE:], v=new[..., :VALUE], rotary_cos=cos,
        rotary_sin=sin, rotary_interleaved=interleaved, block_table=table,
        cache_seqlens=ints([n - 1 for n in batch.keys]),
    )  # fmt: skip
    torch.testing.assert_close(k, expected_k, rtol=2e-3, atol=2e-3, equal_nan=True)
    for i, n in enumerate(batch.keys):
        batch.q[i][..., VALUE:] = rotated(batch.q[i][..., VALUE:], angles[n - 1], interleaved)
        batch.k[i][n - 1] = k[places[i]]
        batch.v[i] = batch.k[i][..., :VALUE]
    batch.check(list(zip(o, lse, strict=True)))


def rotated(x: torch.Tensor, angles: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Pairs of the last dimension's 64 elements, turned by 32 angles and rounded."""
    pairs = x.float().view(*x.shape[:-1], *((32, 2) if interleaved else (2, 32)))
    axis = -1 if interleaved else -2
    a, b = pairs.unbind(axis)
    cos, sin = angles.cos().half().float(), angles.sin().half().float()
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], axis)
    return turned.flatten(-2).to(x.dtype)


def call(**changed: Any) -> Any:
    arguments: dict[str, Any] = {
        "q": torch.zeros(2, 1, 4, 64).half(), "qv": torch.zeros(2, 1, 4, 512).half(),
        "k_cache": torch.zeros(2, 16, 1, 64).half(), "v_cache": torch.zeros(2, 16, 1, 512).half(),
        "cache_seqlens": ints([3, 16]),
    }  # fmt: skip
    return flash_attention.flash_attn_with_kvcache(**arguments | changed)


def mla(**changed: Any) -> Any:
    arguments: dict[str, Any] = {
        "q": torch.zeros(2, 1, 4, D).half(), "k_cache": torch.zeros(3, 16, 1, D).half(),
        "block_table": ints([[0, WILD[0]], [1, 2]]), "cache_seqlens": ints([3, 17]),
        "head_dim_v": VALUE,
    }  # fmt: skip
    return flash_attention.flash_mla_with_kvcache(**arguments | changed)


REFUSED = [
    (call, {"qv": "qv"}, "qv is a str"),
    (call, {"qv": torch.zeros(2, 1, 4, 512)}, "qv has dtype torch.float32: expected float16"),
    (call, {"qv": torch.zeros(2, 1, 4, 512).bfloat16()}, "qv has dtype torch.bfloat16, but q has"),
    (call, {"qv": torch.zeros(2, 1, 3, 512).half()}, r"qv has shape \(2, 1, 3, 512\) and q"),
    (call, {"qv": torch.zeros(2, 4, 512).half()}, "qv has shape .* expected 4 dimensions"),
    (call, {"qv": torch.zeros(2, 1, 4, 256).half()},
     "q and qv have head dimensions 64 and 256: with qv, expected 64 and 512"),
    (call, {"v_cache": torch.zeros(2, 16, 1, 256).half()}, "v has head dimension 256, but qv has"),
    (call, {"v_cache": torch.zeros(2, 16, 2, 512).half()}, "only their head dimensions may"),
    (call, {"qv": torch.zeros(2, 1, 4, 512).half().requires_grad_()}, "qv requires a gradient"),
    (call, {"out": torch.zeros(2, 1, 4, 64).half()}, r"expected \(2, 1, 4, 512\)"),
    (mla, {"q": torch.zeros(2, 1, 4, 512).half()}, "q has head dimension 512: expected 576"),
    (mla, {"k_cache": torch.zeros(3, 16, 1, 640).half()}, "k_cache has head dimension 640"),
    (mla, {"k_cache": torch.zeros(3, 16, D).half()}, "k_cache has shape .* expected 4 dimensions"),
    (mla, {"head_dim_v": 256}, "head_dim_v is 256: expected 512"),
    (mla, {"cache_seqlens": torch.tensor([3, 16])}, "cache_seqlens has dtype torch.int64"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "changed", "message"), REFUSED, ids=[message for *_, message in REFUSED]
)
def test_what_is_not_supported_is_named(
    function: Any, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        function(**changed)
