"""Convolutions on the GPU, against fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.convolution.op import ConvCall
from flash_attention.operators.convolution.persistent_op import PersistentConv
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


FITTING: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "deep": ((32, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
    "ragged": ((3, 72, 23, 17), (136, 72, 3, 2), {"padding": (1, 2), "dilation": (2, 1)}),
    "point": ((33, 64, 14, 14), (264, 64, 1, 1), {}),
}


@pytest.mark.parametrize("case", FITTING)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_persistent_kernel(case: str, dtype: torch.dtype, seed: int) -> None:
    """In every configuration, and called again for other images."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("for Hopper")
    x_shape, w_shape, how = FITTING[case]
    weight, bias = (
        ordinary(s, dtype, seed + i).cuda() for i, s in enumerate((w_shape, w_shape[:1]))
    )
    n, channels, *size = x_shape
    filters, _, *taps = w_shape
    pixels = size[0], size[1]
    call = ConvCall(
        n, channels, filters, pixels, pixels, (taps[0], taps[1]), (1, 1), (1, 1), (1, 1), 1,
        "float16",
    )  # fmt: skip
    for i, config in enumerate((None, *PersistentConv().space(call, 90), None)):
        x = ordinary(x_shape, dtype, seed + i).cuda()
        y = operators.conv2d(
            x, weight, bias, activation="relu", algorithm="persistent", config=config, **how
        )
        assert off(y, x, weight, bias, "relu", **how) <= CUT * ALLOWED["ieee"]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_torch_compile_gives_the_same(dtype: torch.dtype, seed: int) -> None:
    x = ordinary((2, 32, 20, 20), dtype, seed).cuda()
    weight = ordinary((48, 32, 3, 3), dtype, seed + 1).cuda()

    def block(x: torch.Tensor) -> torch.Tensor:
        return operators.conv2d(x, weight, padding=1, activation="relu")

    assert torch.equal(torch.compile(block, fullgraph=True)(x), block(x))
