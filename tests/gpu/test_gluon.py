"""The warp-specialised Gluon kernels on a Hopper GPU, against attention in fp64 by the row rule."""

from __future__ import annotations

from functools import partial

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import gluon
from flash_attention.gluon.config import default_config
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from tests.gpu.times import has_plausible_unit
from tests.gpu.triton_calls import DTYPES, LENGTHS, check, draw

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="the Gluon kernels need compute capability 9.0",
    ),
]

both = pytest.mark.parametrize("ping_pong", [False, True], ids=["WS", "PP"])
masks = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


@both
@masks
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d_head", [64, 128])
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(
    ping_pong: bool, causal: bool, dtype: torch.dtype, d_head: int, length: int, seed: int
) -> None:
    q, k, v = draw((length, length), (2, 2), d_head, dtype, seed)
    check(partial(gluon.forward, ping_pong=ping_pong), q, k, v, causal=causal)


@both
@masks
@pytest.mark.parametrize("lengths", [(1, 203), (203, 1), (113, 1023), (1023, 113), (300, 4097)])
def test_different_lengths_and_grouped_queries(
    ping_pong: bool, causal: bool, lengths: tuple[int, int], seed: int
) -> None:
    q, k, v = draw(lengths, (8, 2), 128, torch.float16, seed)
    check(partial(gluon.forward, ping_pong=ping_pong), q, k, v, causal=causal)


@both
@masks
@pytest.mark.parametrize("d_head", [64, 128])
def test_every_configuration(ping_pong: bool, causal: bool, d_head: int, seed: int) -> None:
    """Several tiles a thread block where the grid is persistent; a ragged last tile and block."""
    q, k, v = draw((1500, 1700), (24, 12), d_head, torch.float16, seed)
    for config in gluon.configs(ping_pong, d_head):
        call = partial(gluon.forward, ping_pong=ping_pong, config=config)
        check(call, q, k, v, causal=causal)


@both
@masks
def test_a_thousand_repeats_are_bitwise_equal(ping_pong: bool, causal: bool, seed: int) -> None:
    q, k, v = draw((515, 643), (16, 8), 128, torch.float16, seed)
    first = gluon.forward(q, k, v, ping_pong=ping_pong, causal=causal)
    out = torch.empty_like(first)
    for i in range(1000):
        gluon.forward(q, k, v, ping_pong=ping_pong, causal=causal, out=out.fill_(float("nan")))
        assert bitwise_equal(out, first), f"repeat {i}"


@both
def test_any_strides(ping_pong: bool, seed: int) -> None:
    """Heads before the sequence, and all three in one tensor with padded rows."""
    q, k, v = (x.transpose(1, 2) for x in draw((12, 12), (203, 203), 128, torch.float16, seed))
    packed = torch.full((2, 203, 3, 12, 136), float("nan"), dtype=q.dtype, device="cuda")
    for i, x in enumerate((q, k, v)):
        packed[:, :, i, :, :128] = x
    views = [packed[:, :, i, :, :128] for i in range(3)]
    reference, _ = attention_reference(q, k, v, fp64=True)
    for tensors in ((q, k, v), views):
        found = compare(gluon.forward(*tensors, ping_pong=ping_pong), reference)
        assert found.passed, found.describe()


def test_without_keys_the_output_is_zero() -> None:
    q = torch.randn((1, 5, 2, 64), dtype=torch.float16, device="cuda")
    k = q[:, :0]
    out = gluon.forward(q, k, k, ping_pong=True, out=torch.full_like(q, float("nan")))
    assert not out.any()


@both
def test_autotuning(
    ping_pong: bool, tmp_path: object, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path))
    q, k, v = draw((1024, 1024), (8, 8), 64, torch.float16, seed)
    first = gluon.best_config(q, k, v, ping_pong=ping_pong, causal=True)
    assert first.config in gluon.configs(ping_pong, 64)
    assert not first.failed
    assert has_plausible_unit(
        first.milliseconds,
        lambda: gluon.forward(q, k, v, ping_pong=ping_pong, causal=True, config=first.config),
    )
    second = gluon.best_config(q, k, v, ping_pong=ping_pong, causal=True)
    assert second.cached
    assert (second.config, second.milliseconds) == (first.config, first.milliseconds)


def test_the_caller_s_stream_is_used(seed: int) -> None:
    q, k, v = draw((1023, 1023), (8, 8), 128, torch.float16, seed)
    expected = gluon.forward(q, k, v, ping_pong=True)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        late = q.clone()
        out = gluon.forward(late, k, v, ping_pong=True, config=default_config(True, 128))
    stream.synchronize()
    assert bitwise_equal(out, expected)
