"""The plain Triton kernel on the GPU, against attention in fp64 by the row rule."""

from __future__ import annotations

from functools import partial

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import triton as plain
from tests.gpu.triton_calls import DTYPES, LENGTHS, check, draw

pytestmark = pytest.mark.gpu
masks = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


@masks
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d_head", [64, 128])
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(causal: bool, dtype: torch.dtype, d_head: int, length: int, seed: int) -> None:
    q, k, v = draw((length, length), (2, 2), d_head, dtype, seed)
    check(plain.forward, q, k, v, causal=causal)


@masks
@pytest.mark.parametrize("lengths", [(1, 203), (203, 1), (113, 1023), (1023, 113)])
@pytest.mark.parametrize("d_head", [32, 256])
def test_other_shapes(causal: bool, lengths: tuple[int, int], d_head: int, seed: int) -> None:
    q, k, v = draw(lengths, (8, 2), d_head, torch.float16, seed)
    check(plain.forward, q, k, v, causal=causal)


@masks
def test_every_configuration(causal: bool, seed: int) -> None:
    major, minor = torch.cuda.get_device_capability()
    for d_head in (32, 64, 128, 256):
        q, k, v = draw((500, 700), (12, 6), d_head, torch.float16, seed)
        for config in plain.configs(d_head, 10 * major + minor):
            check(partial(plain.forward, config=config), q, k, v, causal=causal)


def test_autotuning(tmp_path: object, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path))
    q, k, v = draw((1024, 1024), (8, 8), 64, torch.float16, seed)
    first = plain.best_config(q, k, v, causal=True)
    assert not first.cached
    assert plain.best_config(q, k, v, causal=True).cached
