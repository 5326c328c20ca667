"""Convolutions on the GPU, against fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.convolution.op import ConvCall
from flash_attention.operators.convolution.persistent_op import PersistentConv
from flash_attention.operators.convolution.single_op import SingleConv
from tests.operators.images import CASES, off
from tests.operators.matrices import ALLOWED, CUT
from tests.operators.values import DTYPES, ordinary

pytestmark = pytest.mark.gpu


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
    configs: list[Any] = [None, *PersistentConv().space(call, 90), None]
    if case == "point":
        configs += [*SingleConv().space(call, 90), *SingleConv().space(call, 90)]
    for i, config in enumerate(configs):
        x = ordinary(x_shape, dtype, seed + i).cuda()
        y = operators.conv2d(
            x, weight, bias, activation="relu", algorithm="persistent", config=config, **how
        )
        assert off(y, x, weight, bias, "relu", **how) <= CUT * ALLOWED["ieee"]


FEW_TILES = (512, 2048, 7), (2048, 512, 7), (1024, 256, 14), (256, 1024, 14), (1024, 512, 14)


@pytest.mark.parametrize("layer", FEW_TILES)
@pytest.mark.parametrize("biased", [False, True])
def test_tiles_that_all_run_at_once(layer: tuple[int, int, int], biased: bool, seed: int) -> None:
    """By default, and as asked for, several times."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("for Hopper")
    channels, filters, size = layer
    weight, bias = (
        ordinary(s, torch.float16, seed + i).cuda()
        for i, s in enumerate(((filters, channels, 1, 1), (filters,)))
    )
    pairs = (size, size), (size, size), (1, 1), (1, 1), (0, 0), (1, 1)
    call = ConvCall(32, channels, filters, *pairs, 1, "float16", biased)
    asked: dict[str, Any] = {"algorithm": "persistent", "config": SingleConv().default(call)}
    how: dict[str, Any] = {"bias": bias, "activation": "relu"} if biased else {}
    for i, config in enumerate((asked, {}, asked, {})):
        x = ordinary((32, channels, size, size), torch.float16, seed + i).cuda()
        y = operators.conv2d(x, weight, **how, **config)
        assert off(y, x, weight, **how) <= CUT * ALLOWED["ieee"]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_torch_compile_gives_the_same(dtype: torch.dtype, seed: int) -> None:
    x = ordinary((2, 32, 20, 20), dtype, seed).cuda()
    weight = ordinary((48, 32, 3, 3), dtype, seed + 1).cuda()

    def block(x: torch.Tensor) -> torch.Tensor:
        return operators.conv2d(x, weight, padding=1, activation="relu")

    assert torch.equal(torch.compile(block, fullgraph=True)(x), block(x))
