"""Convolutions on the GPU, against fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from tests.operators.images import CASES, off
from tests.operators.matrices import ALLOWED
from tests.operators.values import DTYPES, ordinary

pytestmark = pytest.mark.gpu
CUT = 16  # as in test_operators_matmul.py


@pytest.mark.parametrize("algorithm", ["direct", "im2col", "implicit"])
@pytest.mark.parametrize("case", [*CASES, "large"])
def test_convolutions(case: str, algorithm: str, seed: int) -> None:
    large = ((8, 64, 56, 56), (64, 64, 3, 3), {"padding": 1})
    x_shape, w_shape, how = CASES.get(case, large)
    dtype = torch.bfloat16 if case == "strided" else torch.float16
    x, weight = (ordinary(s, dtype, seed + i).cuda() for i, s in enumerate((x_shape, w_shape)))
    more: dict[str, Any] = {}
    if algorithm != "direct":
        more = {"bias": ordinary(w_shape[:1], dtype, seed + 2).cuda(), "activation": "silu"}
    y = operators.conv2d(x, weight, algorithm=algorithm, **how, **more)
    assert off(y, x, weight, **how, **more) <= CUT * ALLOWED["ieee"]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_torch_compile_gives_the_same(dtype: torch.dtype, seed: int) -> None:
    x = ordinary((2, 32, 20, 20), dtype, seed).cuda()
    weight = ordinary((48, 32, 3, 3), dtype, seed + 1).cuda()

    def block(x: torch.Tensor) -> torch.Tensor:
        return operators.conv2d(x, weight, padding=1, activation="relu")

    assert torch.equal(torch.compile(block, fullgraph=True)(x), block(x))
