"""The persistent convolution for Hopper: its sm_90a code in the emulator, races on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton

from flash_attention import operators
from flash_attention.operators.convolution import persistent
from flash_attention.operators.convolution.op import ConvCall
from flash_attention.operators.convolution.persistent_op import (
    PersistentConv,
    PersistentConvConfig,
    with_best_box,
)
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.versions import minor_of

from .images import off
from .matrices import ALLOWED
from .planting import found, is_put_back, planted
from .values import ordinary, shifted

SMALL = PersistentConvConfig(64, 64, GROUP_M=2, BUFFERS=3, IMAGES=2, LINES=2, PIXELS=4)
TWO = replace(SMALL, BLOCK_M=128, BLOCK_N=128)
Drawn = tuple[ConvCall, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]


def drawn(dtype: torch.dtype, seed: int) -> Drawn:
    """Boxes that reach beyond the images, more tiles than the emulated GPU has multiprocessors,
    more steps than buffers, and fewer channels than two of them."""
    how: dict[str, Any] = {"padding": (1, 2), "dilation": (2, 1)}
    x, weight = ordinary((3, 72, 7, 6), dtype, seed), ordinary((136, 72, 3, 2), dtype, seed + 1)
    call = ConvCall(
        3, 72, 136, (7, 6), (5, 9), (3, 2), (1, 1), (1, 2), (2, 1), 1,
        str(dtype).removeprefix("torch."), True, "silu",
    )  # fmt: skip
    return call, x, weight, ordinary((136,), dtype, seed + 2), how


@pytest.mark.parametrize("config", [SMALL, TWO], ids=["one group", "two groups"])
def test_boxes_taps_and_channels(config: PersistentConvConfig, seed: int) -> None:
    _, x, weight, bias, how = drawn(torch.bfloat16, seed)
    y = operators.conv2d(
        x, weight, bias, activation="silu", algorithm="persistent", config=config, **how
    )
    assert off(y, x, weight, bias, "silu", **how) <= 2 * ALLOWED["ieee"]
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_every_configuration(seed: int) -> None:
    x, weight = (
        ordinary((5, 64, 7, 7), torch.float16, seed),
        ordinary((264, 64, 1, 1), torch.float16, seed + 1),
    )
    op, call = PersistentConv(), ConvCall(5, 64, 264, (7, 7), (7, 7), *((1, 1),) * 2, (0, 0),
                                          (1, 1), 1, "float16")  # fmt: skip
    for config in op.space(call, 90):
        y = operators.conv2d(x, weight, algorithm="persistent", config=config)
        assert off(y, x, weight) <= ALLOWED["ieee"]
        compiled = emulated.compiled(op, config, call)
        assert compiled.spill_bytes == 0 and not compiled.warnings
        assert compiled.shared_bytes <= config.shared_bytes


@pytest.mark.parametrize("size", [56, 28, 14, 7])
def test_the_default_box_makes_no_tile_in_vain(size: int) -> None:
    call = ConvCall(32, 64, 64, (size, size), (size, size), (3, 3), *((1, 1),) * 3, 1, "float16")
    for config in PersistentConv().space(call, 90):
        assert config.tiles(call) == -(-call.pixels // config.BLOCK_M) * -(-64 // config.BLOCK_N)
    one = with_best_box(SMALL, replace(call, images=1))
    assert one.IMAGES == 1


# (channels, size, filters, window, with bias): the tile that an H200 was fastest with, or almost.
LAYERS = {
    (64, 56, 64, 3, True): (256, 64), (64, 56, 256, 1, False): (128, 256),
    (64, 56, 256, 1, True): (256, 128), (256, 56, 64, 1, False): (256, 64),
    (128, 28, 128, 3, True): (64, 128), (256, 14, 256, 3, False): (128, 128),
    (512, 7, 512, 3, True): (64, 128), (512, 7, 2048, 1, False): (128, 256),
}  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_the_default_tile_of_a_layer(layer: tuple[int, int, int, int, bool]) -> None:
    channels, size, filters, window, bias = layer
    call = ConvCall(
        32, channels, filters, (size, size), (size, size), (window, window), (1, 1),
        (window // 2, window // 2), (1, 1), 1, "float16", bias,
    )  # fmt: skip
    config = PersistentConv().default(call)
    assert LAYERS[layer] == (config.BLOCK_M, config.BLOCK_N)


X, W = torch.zeros(1, 8, 5, 5).half(), torch.zeros(8, 8, 3, 3).half()
BAD: list[tuple[dict[str, Any], str]] = [
    ({"x": X.float(), "weight": W.float()}, "dtype is float32: it takes float16 and bfloat16"),
    ({"stride": 2}, r"stride is \(2, 2\): it takes 1"),
    ({"groups": 2, "weight": W[:, :4]}, "groups is 2: it takes 1"),
    ({"weight": W[:7]}, "7 filters: it takes multiples of 8"),
    ({"bias": shifted(W[:, 0, 0, 0])}, "a tensor does not begin at a multiple of 16 bytes"),
    ({"config": PersistentConvConfig(LINES=3)}, "powers of two, 16 to 64 rows together"),
    ({"config": PersistentConvConfig(BLOCK_K=32)}, "BLOCK_K 32: allowed are 64"),
    ({"config": PersistentConvConfig(256, 256)}, "tiles of 256 x 256: a thread has no 256"),
    ({"config": PersistentConvConfig(BUFFERS=7)}, "263168 bytes of shared memory: at most 232448"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words[:25] for _, words in BAD])
def test_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        operators.conv2d(**{"x": X, "weight": W, "algorithm": "persistent", **change})


PLANTED = [
    ("((step // s.count) & 1) ^ 1", "(step // s.count) & 1"),
    ("mbarrier.wait(s.full.index(place), ((step + i) // s.count) & 1)", "pass"),
    ("warpgroup_mma_wait(1,", "warpgroup_mma_wait(2,"),
    ("warpgroup_mma_wait(0, deps=[acc])\n    mb", "acc\n    mb"),
    ("tma.store_wait(EACH)", "tma.store_wait(2 * EACH)"),
    ("boxes.count * x_desc.block_type.nbytes + ", ""),
    ("tap % KW * DIL_W - PAD_W", "tap % KW * DIL_W - PAD_H"),
    ("tap // KW * DIL_H", "tap // KW * DIL_W"),
    ("line // down * self.IMAGES, line % down", "line // down, line % down"),
    ("line = gl.where(line < self.lines, line, 0)", "line = line"),
    ("i % s.blocks * s.BLOCK_K", "i % s.blocks"),
    ("mask=column < filters", "mask=column <= filters"),
]  # fmt: skip
OF_TWO = [
    ("filter + i * WIDTH]", "filter]"),
    ("s.empty.index(place), count=G", "s.empty.index(place), count=1"),
    ("boxes.at(box + GROUP * EACH)", "boxes.at(box)"),
    ("s.a.index(place * s.groups + GROUP)", "s.a.index(place * s.groups)"),
]
if minor_of(triton.__version__) < (3, 9):  # later releases put the fence there themselves
    PLANTED.append(("            fence_async_shared()\n", ""))
MUTANTS = [("", "", SMALL), *((*m, SMALL) for m in PLANTED), *((*m, TWO) for m in OF_TWO)]


@pytest.mark.parametrize(("old", "new", "config"), MUTANTS)
def test_planted_bugs_are_found(
    old: str, new: str, config: PersistentConvConfig, seed: int
) -> None:
    call, x, weight, bias, how = drawn(torch.float16, seed)
    last = [t.contiguous(memory_format=torch.channels_last) for t in (x, weight)]

    def right(op: PersistentConv) -> bool:
        out = torch.full((3, 136, 5, 9), float("nan"), dtype=torch.float16)
        out = out.contiguous(memory_format=torch.channels_last)
        emulated.run(op, config, call, (*last, out, bias))
        return off(out, x, weight, bias, "silu", **how) <= 8

    mutant = planted(PersistentConv(), persistent, old, new)
    assert found(lambda: right(mutant)) is (bool(old) and not is_put_back(old))
