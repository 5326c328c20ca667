"""What calls are remembered by for the short way."""

from __future__ import annotations

import random

import pytest
import torch

from flash_attention.serving.launch import Call, choose
from flash_attention.serving.options import make_options
from flash_helpers.kernels.serve_config import MANY_HEADS, TELLING_ROWS, ServeKernelConfig


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
    """The key has rows and queries of the average sequence, and whether there are many KV heads, as
    csrc/bindings/serving_query.cpp reckons them."""
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
        key = (*(min(number, TELLING_ROWS) for number in average), batch * kv_heads >= MANY_HEADS)
        config = chosen(n_rows, batch, heads, kv_heads)
        n_seen_again += key in kernels
        assert kernels.setdefault(key, config) == config
    assert n_seen_again > 100 and len(set(kernels.values())) > 1
