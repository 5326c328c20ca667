"""What the serving functions refuse, and in which words; their signatures."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import flash_attention
from flash_helpers.kernel_configs import get_kernel_configs
from tests.serving.problems import Batch, ints, same_bits

VARLEN = (
    "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale causal "
    "window_size softcap alibi_slopes deterministic return_attn_probs block_table"
)
KVCACHE = (
    "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad "
    "block_table softmax_scale causal window_size softcap rotary_interleaved alibi_slopes "
    "num_splits return_softmax_lse"
)
ALSO = "page_table s_aux learnable_sink sinks out scheduler_metadata pack_gqa sm_margin fa_version"


@pytest.mark.parametrize(
    ("function", "positional"),
    [(flash_attention.flash_attn_varlen_func, VARLEN),
     (flash_attention.flash_attn_with_kvcache, KVCACHE)],
)  # fmt: skip
def test_the_arguments_are_flash_attn_s_in_their_order(function: Any, positional: str) -> None:
    first = positional.split()
    parameters = inspect.signature(function).parameters
    kinds = {name: p.kind for name, p in parameters.items()}
    assert list(kinds)[: len(first)] == first
    rest = {name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY}
    assert set(kinds) == {*first, *rest} and set(ALSO.split()) <= rest


def varlen(**changed: Any) -> Any:
    arguments: dict[str, Any] = {
        "q": torch.zeros(4, 4, 64, dtype=torch.float16),
        "k": torch.zeros(6, 2, 64, dtype=torch.float16),
        "v": torch.zeros(6, 2, 64, dtype=torch.float16),
        "cu_seqlens_q": ints([0, 1, 4]),
        "cu_seqlens_k": ints([0, 3, 6]),
    }
    return flash_attention.flash_attn_varlen_func(**arguments | changed)


def kvcache(**changed: Any) -> Any:
    arguments: dict[str, Any] = {
        "q": torch.zeros(2, 1, 4, 64, dtype=torch.float16),
        "k_cache": torch.zeros(2, 16, 2, 64, dtype=torch.float16),
        "v_cache": torch.zeros(2, 16, 2, 64, dtype=torch.float16),
        "cache_seqlens": ints([3, 16]),
    }
    return flash_attention.flash_attn_with_kvcache(**arguments | changed)


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float16)


NEW = {"k": half(2, 1, 2, 64), "v": half(2, 1, 2, 64)}
REFUSED = [
    (varlen, {"dropout_p": 0.1}, "dropout_p is given"),
    (varlen, {"alibi_slopes": torch.ones(4)}, "alibi_slopes is given"),
    (varlen, {"k_descale": torch.ones(1)}, "k_descale is given"),
    (varlen, {"q": half(1, 4, 4, 64)}, r"q has shape \(1, 4, 4, 64\): expected 3 dimensions"),
    (varlen, {"q": torch.zeros(4, 4, 64)}, "q has dtype torch.float32: expected float16"),
    (varlen, {"q": half(4, 4, 59), "k": half(6, 2, 59)}, "v has head dimension 64: at most"),
    (varlen, {"q": half(4, 4, 264), "k": half(6, 2, 264), "v": half(6, 2, 264)}, "up to 256"),
    (varlen, {"k": half(6, 3, 64), "v": half(6, 3, 64)}, "q has 4 heads and k 3"),
    (varlen, {"v": half(6, 2, 128)}, "v has head dimension 128: at most that of q, 64"),
    (varlen, {"v": half(5, 2, 64)}, "only their head dimensions may differ"),
    (varlen, {"cu_seqlens_q": torch.tensor([0, 1, 4])}, "cu_seqlens_q has dtype torch.int64"),
    (varlen, {"cu_seqlens_k": None}, "cu_seqlens_k is None"),
    (varlen, {"cu_seqlens_k": ints([0, 6])}, r"cu_seqlens_k has shape \(2,\): expected \(3\)"),
    (varlen, {"seqused_k": ints([3])}, r"seqused_k has shape \(1,\): expected \(2\)"),
    (varlen, {"softcap": -1.0}, "softcap is -1.0"),
    (varlen, {"window_size": (1,)}, r"window_size is \(1,\)"),
    (varlen, {"window_size": 3}, "window_size is 3"),
    (varlen, {"window_size": torch.tensor([1.0, 2.0])}, r"window_size is tensor\(\[1., 2"),
    (varlen, {"num_splits": 129}, "num_splits is 129"),
    (varlen, {"causal": 1}, "causal is an int"),
    (varlen, {"s_aux": torch.ones(3)}, "s_aux is a torch.float32 tensor of shape"),
    (varlen, {"s_aux": torch.ones(4), "sinks": torch.ones(4)}, "s_aux and sinks are given"),
    (varlen, {"out": half(4, 4, 72)}, r"out has shape \(4, 4, 72\): expected \(4, 4, 64\)"),
    (varlen, {"softmax_scale": float("inf")}, "softmax_scale is inf"),
    (kvcache, NEW | {"cache_seqlens": None}, "k is given without cache_seqlens"),
    (kvcache, {"k": half(2, 1, 2, 64)}, "k and v are appended together"),
    (kvcache, NEW | {"k": half(1, 1, 2, 64), "v": half(1, 1, 2, 64)}, "k has batch size 1"),
    (kvcache, NEW | {"k": half(2, 1, 4, 64), "v": half(2, 1, 4, 64)},
     r"but the cache has \(2, 64\)"),
    (kvcache, NEW | {"q": half(2, 0, 4, 64)}, "q has no rows: k would not be appended"),
    (kvcache, NEW | {"k_cache": half(1, 16, 2, 64).expand(2, -1, -1, -1)}, "k_cache has strides"),
    (kvcache, {"cu_seqlens_k_new": ints([0, 1, 2])}, "cu_seqlens_k_new is given without k"),
    (kvcache, NEW | {"rotary_cos": half(16, 32)}, "rotary_cos and rotary_sin belong together"),
    (kvcache, {"rotary_cos": half(16, 32), "rotary_sin": half(16, 32)},
     "rotary_cos is given without k"),
    (kvcache, NEW | {"rotary_cos": half(16, 12), "rotary_sin": half(16, 12)},
     "rotates 24 elements of a head: expected a multiple of 16 up to 64"),
    (kvcache, NEW | {"rotary_cos": half(16, 40), "rotary_sin": half(16, 40)}, "rotates 80 elem"),
    (kvcache, NEW | {"rotary_cos": half(16, 16), "rotary_sin": half(8, 16)}, "they must be equal"),
    (kvcache, NEW | {"rotary_seqlens": ints([0, 1])}, "belong together"),
    (kvcache, {"q": half(2, 1, 4, 59), "k_cache": half(2, 16, 2, 59),
               "v_cache": half(2, 16, 2, 59)},
     "k_cache has head dimension 59: of a cache"),
    (kvcache, {"qv": half(2, 1, 4, 64)}, "q and qv have head dimensions 64 and 64"),
    (kvcache, {"q": half(4, 4, 64)}, "expected 4 dimensions"),
    (kvcache, {"q": half(3, 1, 4, 64), "cache_seqlens": None}, "k_cache has batch size 2"),
    (kvcache, {"cache_seqlens": 17}, "cache_seqlens is 17: the cache holds 16 keys"),
    (kvcache, {"cache_seqlens": torch.tensor([3, 16])}, "cache_seqlens has dtype torch.int64"),
    (kvcache, {"cache_batch_idx": ints([0])}, "cache_batch_idx has shape"),
    (kvcache, {"cache_batch_idx": ints([0, 1]), "block_table": ints([[0], [1]])},
     "cache_batch_idx is given with block_table"),
    (kvcache, {"block_table": ints([[0]])}, "block_table has shape"),
    (kvcache, {"block_table": ints([[0], [1]]), "page_table": ints([[0], [1]])},
     "block_table and page_table are given"),
    (kvcache, {"k_cache": half(2, 0, 2, 64), "v_cache": half(2, 0, 2, 64),
               "block_table": ints([[0], [1]])}, "pages of 0 keys"),
    (kvcache, {"k_cache": half(2, 16, 64, 2).transpose(2, 3)}, "k_cache has stride 2 in its last"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "changed", "message"), REFUSED, ids=[message for *_, message in REFUSED]
)
def test_case_19_what_is_not_supported_is_named(
    function: Any, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        function(**changed)


@pytest.mark.parametrize("name", ["s_aux", "learnable_sink", "sinks"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_names_and_types_of_a_sink(name: str, dtype: torch.dtype) -> None:
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    expected = Batch([3], [9], sinks=sinks).packed()
    found = Batch([3], [9]).packed(**{name: sinks.to(dtype), "s_aux": None} | (
        {"s_aux": sinks.to(dtype)} if name == "s_aux" else {}))  # fmt: skip
    assert same_bits(found, expected)


def test_slots_of_a_cache() -> None:
    batch = Batch([1, 1], [9, 4])
    k, v = (torch.full((5, 16, 2, 64), float("nan"), dtype=torch.float16) for _ in range(2))
    for i, slot in enumerate((3, 1)):
        k[slot, : batch.keys[i]], v[slot, : batch.keys[i]] = batch.k[i], batch.v[i]
    batch.check(batch.with_cache(k, v, cache_batch_idx=ints([3, 1])))


def test_packed_queries_with_a_cache() -> None:
    """vLLM's calls: starts of queries, used keys, pages, in either function."""
    batch = Batch([3, 0, 1], [40, 9, 17])
    k, v, table = batch.pages(8)
    q, starts, used = torch.cat(batch.q), ints([0, 3, 3, 4]), ints(batch.keys)
    found: Any = flash_attention.flash_attn_varlen_func(
        q, k, v, starts, None, 3, 40, seqused_k=used, block_table=table, return_softmax_lse=True,
        fa_version=3, scheduler_metadata=None, num_splits=0,
    )  # fmt: skip
    by_varlen, lse = found
    by_cache = flash_attention.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=used, page_table=table, cu_seqlens_q=starts, max_seqlen_q=3
    )
    assert isinstance(by_cache, torch.Tensor) and torch.equal(by_varlen, by_cache)
    batch.check([(by_varlen[a:b], lse[:, a:b]) for a, b in ((0, 3), (3, 3), (3, 4))])


def test_any_strides_of_a_cache() -> None:
    """Keys and values in one allocation, heads before rows."""
    batch = Batch([2, 2], [20, 9])
    memory = torch.full((2, 2, 2, 24, 64), float("nan"), dtype=torch.float16)
    k, v = memory.transpose(2, 3).unbind(1)
    for i, n in enumerate(batch.keys):
        k[i, :n], v[i, :n] = batch.k[i], batch.v[i]
    batch.check(batch.with_cache(k, v))


def test_forward_takes_none_of_these_kernels() -> None:
    q = half(1, 4, 2, 64)
    with pytest.raises(ValueError, match="flash_attn_with_kvcache choose themselves"):
        flash_attention.forward(get_kernel_configs("serve")[0], q, q, q)


def test_what_is_returned() -> None:
    o = varlen()
    assert torch.equal(varlen(return_attn_probs=True)[0], o) and o.shape == (4, 4, 64)
    assert [x is None for x in varlen(return_attn_probs=True)] == [False, False, True]
    assert [tuple(x.shape) for x in varlen(return_softmax_lse=True)] == [(4, 4, 64), (4, 4)]
    assert [tuple(x.shape) for x in kvcache(return_softmax_lse=True)] == [(2, 1, 4, 64), (2, 4, 1)]


def test_negative_scales_and_strides_of_queries() -> None:
    plain = Batch([3], [9]).packed(softmax_scale=-0.25)
    batch = Batch([3], [9])
    batch.q[0] = -batch.q[0]
    assert same_bits(plain, batch.packed(softmax_scale=0.25))
    q = torch.randn(4, 64, 4, dtype=torch.float16).transpose(1, 2)
    assert torch.equal(varlen(q=q), varlen(q=q.contiguous()))
