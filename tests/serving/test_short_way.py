"""What calls are remembered by for the short way, and what they give it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention import emulated
from flash_attention.serving import kvcache, mla, varlen
from flash_attention.serving.launch import Call, choose
from flash_attention.serving.options import make_options
from flash_attention.serving.tensors import read_sinks
from flash_helpers.base.paths import repository_root
from flash_helpers.kernels import registry
from flash_helpers.kernels.serve_args import unpack_serve_args
from flash_helpers.kernels.serve_config import (
    CUT_HEADS,
    FEW_HEADS,
    FEW_KEYS,
    MANY_HEADS,
    PAIR_HEADS,
    TELLING_ROWS,
    ServeKernelConfig,
)
from tests.serving.latent import VALUE, LatentBatch
from tests.serving.problems import FULL, Batch, ints

# What csrc/bindings/serving_query.cpp writes into the record of a call like an earlier one, beside
# the addresses of outputs and scratch memory.
WRITTEN = {
    "q", "k", "v", "o", "lse", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k",
    "leftpad_k", "cache_batch_idx", "block_table", "sinks", "o_partial", "lse_partial", "arrivals",
    "qv", "batch", "n_rows", "seqlen_k", "table_stride", "lse_stride_head",
}  # fmt: skip
FUNCTIONS: Any = flash_attention


def chosen(n_rows: int, batch: int, heads: int, kv_heads: int) -> ServeKernelConfig:
    """Of packed sequences on some GPU."""
    q = torch.empty(n_rows, heads, 128, dtype=torch.float16, device="meta")
    k = torch.empty(1, n_rows, kv_heads, 128, dtype=torch.float16, device="meta")
    starts = torch.empty(batch + 1, dtype=torch.int32, device="meta")
    tensors = {"q": q, "k": k, "v": k, "cu_seqlens_q": starts, "cu_seqlens_k": starts}
    return choose(Call(tensors, make_options(128, None, True, (-1, -1), 0.0, 0), batch, n_rows))


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (64, 8), (12, 4)])
def test_calls_with_one_key_have_one_kernel(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], heads: int, kv_heads: int
) -> None:
    """The key has rows and queries of the average sequence, whether there are many KV heads, and of
    few how many and whether keys are few, as csrc/bindings/serving_query.cpp reckons them."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    draw = random.Random(0)
    kernels: dict[tuple[int, ...], ServeKernelConfig] = {}
    n_seen_again = 0
    for _ in range(600):
        batch = draw.randrange(1, 40)
        n_rows = draw.choice([batch * draw.randrange(1, 70), draw.randrange(1, 40_000)])
        average = (
            -(-n_rows * heads // (kv_heads * batch)), -(-n_rows // batch), n_rows // batch,
        )  # fmt: skip
        of_all = batch * kv_heads
        few = (min(of_all, FEW_HEADS + 1), n_rows <= FEW_KEYS) if of_all <= CUT_HEADS else ()
        many = of_all >= MANY_HEADS, of_all >= PAIR_HEADS
        key = (*(min(number, TELLING_ROWS) for number in average), *many, *few)
        config = chosen(n_rows, batch, heads, kv_heads)
        n_seen_again += key in kernels
        assert kernels.setdefault(key, config) == config
    assert n_seen_again > 100 and len(set(kernels.values())) > 1


def test_configurations_are_made_once_for_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making and checking them took longer than everything else of a call that is checked."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    chosen(9, 3, 8, 8), chosen(9000, 3, 8, 8)
    for family in registry.by_preference((9, 0), serves=True):
        monkeypatch.setattr(type(family), "candidates", lambda _: pytest.fail("made again"))
    assert chosen(9000, 3, 8, 8) != chosen(9, 3, 8, 8)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, dict[str, int | float]]]:
    """The kernels and records of calls, none of which is launched."""
    found: list[tuple[object, dict[str, int | float]]] = []

    def launch(config: object, record: bytes, *_: object) -> None:
        found.append((config, unpack_serve_args(record)))

    monkeypatch.setattr(emulated, "launch_serving", launch)
    return found


def sinks_of(dtype: torch.dtype) -> Callable[[Any], object]:
    def call(batch: Batch) -> object:
        return batch.paged(16, s_aux=torch.ones(batch.heads, dtype=dtype))

    return call


def whole_latents(batch: Batch) -> object:
    k, _, table = batch.pages(16)
    q = torch.stack(batch.q)
    return FUNCTIONS.flash_mla_with_kvcache(q, k, table, ints(batch.keys), VALUE)


@pytest.mark.parametrize(("kind", "call"), [
    (Batch, sinks_of(torch.float32)), (Batch, sinks_of(torch.bfloat16)),
    (Batch, sinks_of(torch.float16)), (LatentBatch, lambda batch: batch.paged(16)),
    (LatentBatch, lambda batch: batch.cached(200)), (LatentBatch, whole_latents),
    (partial(LatentBatch, separate=True), lambda batch: batch.paged(16)),
])  # fmt: skip
def test_steps_of_a_generation_differ_in_what_is_written(
    records: list[Any], kind: Callable[..., Batch], call: Callable[[Any], object]
) -> None:
    """Else the short way would launch them with numbers of the first."""
    for n in (2, 3, 5):
        call(kind([1] * n, [9 + 37 * i for i in range(n)], FULL, seed=n))
    (config, first), *others = records
    assert len(others) == 2
    for other, record in others:
        assert other == config
        changed = {name for name in first if first[name] != record[name]}
        assert {"batch", "n_rows"} <= changed <= WRITTEN


def test_a_latent_cache_has_one_record_whole_and_in_parts(records: list[Any]) -> None:
    batch = LatentBatch([2, 2], [40, 9], FULL)
    k, _, table = batch.pages(16)
    q, used = torch.stack(batch.q), ints(batch.keys)
    FUNCTIONS.flash_mla_with_kvcache(q, k, table, used, VALUE)
    FUNCTIONS.flash_attn_with_kvcache(
        q[..., VALUE:], k[..., VALUE:], k[..., :VALUE], qv=q[..., :VALUE], block_table=table,
        cache_seqlens=used, return_softmax_lse=True,
    )  # fmt: skip
    outputs = dict.fromkeys(("o", "lse", "o_partial", "lse_partial", "arrivals"))
    assert records[0][1] | outputs == records[1][1] | outputs
    assert records[0][1]["qv"] == q.data_ptr() and records[0][1]["q"] == q.data_ptr() + 2 * VALUE


def names_of_given() -> list[str]:
    """In the extension's order."""
    root = repository_root()
    assert root
    text = (root / "csrc/bindings/serving_query.h").read_text()
    (body,) = re.findall(r"enum class Given \{(.*?)\};", text, re.DOTALL)
    *names, count = re.findall(r"^ *k(\w+),", body, re.MULTILINE)
    assert count == "Count"
    return names


def asked_about(monkeypatch: pytest.MonkeyPatch, module: object, answer: object) -> list[Any]:
    """What the module's calls give the short way, which finds them all."""
    asked: list[Any] = []

    def again(given: object) -> object:
        asked.append(given)
        return answer

    monkeypatch.setattr(module, "again", again)
    return asked


NAMES_OF_CACHES = {
    "Q": "q", "K": "k_cache", "V": "v_cache", "Out": "out", "CuSeqlensQ": "cu_seqlens_q",
    "SequsedK": "cache_seqlens", "Leftpad": "cache_leftpad", "Slots": "cache_batch_idx",
    "BlockTable": "block_table", "PageTable": "page_table", "SAux": "s_aux",
    "LearnableSink": "learnable_sink", "Sinks": "sinks", "Qv": "qv", "Scale": "softmax_scale",
    "Causal": "causal", "Window": "window_size", "Softcap": "softcap", "NumSplits": "num_splits",
}  # fmt: skip
NAMES_OF_PACKED = NAMES_OF_CACHES | {
    "K": "k", "V": "v", "CuSeqlensK": "cu_seqlens_k", "SequsedQ": "seqused_q",
    "SequsedK": "seqused_k",
}  # fmt: skip
for name in ("Slots", "Qv"):
    del NAMES_OF_PACKED[name]


@pytest.mark.parametrize(("module", "function", "names", "rest"), [
    (kvcache, "flash_attn_with_kvcache", NAMES_OF_CACHES, {"ForCaches": True, "Results": 1}),
    (varlen, "flash_attn_varlen_func", NAMES_OF_PACKED, {"ForCaches": False, "Results": 1}),
])  # fmt: skip
def test_what_is_given_is_in_the_extensions_order(
    monkeypatch: pytest.MonkeyPatch, module: Any, function: str, names: Any, rest: dict[str, Any]
) -> None:
    asked = asked_about(monkeypatch, module, "found")
    values = {name: object() for name in names.values()}
    assert getattr(FUNCTIONS, function)(**values) == "found"
    given = dict(zip(names_of_given(), asked[0], strict=True))
    refused = given.pop("Refused")
    assert isinstance(refused, tuple) and not set(refused) & set(values.values())
    expected = dict.fromkeys(given) | {k: values[name] for k, name in names.items()} | rest
    assert given == expected


def test_the_whole_latents_are_asked_about_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_about(monkeypatch, mla, ("o", "lse"))
    q, k, table, used, out = (object() for _ in range(5))
    found = FUNCTIONS.flash_mla_with_kvcache(
        q, k, table, used, VALUE, softmax_scale=0.5, causal=True, out=out
    )
    given = dict(zip(names_of_given(), asked[0], strict=True))
    expected = {
        "Q": q, "K": k, "Out": out, "SequsedK": used, "BlockTable": table, "Qv": VALUE,
        "Scale": 0.5, "Causal": True, "Window": (-1, -1), "Softcap": 0.0, "NumSplits": 0,
        "ForCaches": True, "Results": 2, "Refused": (),
    }  # fmt: skip
    assert found == ("o", "lse") and given == dict.fromkeys(given) | expected


def test_sinks_are_copied_where_kernels_cannot_read_them() -> None:
    fp32 = torch.randn(8)
    assert read_sinks(fp32) is fp32
    for sinks in (fp32.bfloat16(), fp32.half(), fp32[::2], torch.nn.Parameter(fp32.half()),
                  fp32[:1].expand(8)):  # fmt: skip
        with torch.no_grad():
            read = read_sinks(sinks)
        assert read.dtype == torch.float32 and read.is_contiguous() and type(read) is torch.Tensor
        assert torch.equal(read, sinks.float())
