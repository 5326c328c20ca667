"""The convolution of one tap whose tiles all run at once: its sm_90a code in the emulator, races
on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton

from flash_attention import operators
from flash_attention.operators.convolution import single
from flash_attention.operators.convolution.op import ConvCall
from flash_attention.operators.convolution.single_op import SingleConv, SingleConvConfig
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.versions import minor_of

from .images import off
from .matrices import ALLOWED
from .planting import found, planted
from .values import ordinary

SMALL = SingleConvConfig(64, 128, BUFFERS=2)
LONG = SingleConvConfig(64, 128, 128, BUFFERS=2)  # steps


def call_of(images: int, channels: int, filters: int, size: int, bias: bool = False) -> ConvCall:
    pairs = (size, size), (size, size), (1, 1), (1, 1), (0, 0), (1, 1)
    activation = "silu" if bias else "none"
    return ConvCall(images, channels, filters, *pairs, 1, "float16", bias, activation)


def drawn(channels: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pixels and filters that fill no tile, and channels that fill no step."""
    x = ordinary((3, channels, 7, 6), torch.float16, seed)
    weight = ordinary((136, channels, 1, 1), torch.float16, seed + 1)
    return x, weight, ordinary((136,), torch.float16, seed + 2)


@pytest.mark.parametrize("channels", [40, 264], ids=["fewer steps than places", "more"])
@pytest.mark.parametrize(
    "shape", [(64, 128), (128, 128), (128, 64), (64, 64), (64, 128, 128), (128, 64, 128)]
)
def test_tiles_and_steps(shape: tuple[int, ...], channels: int, seed: int) -> None:
    x, weight, bias = drawn(channels, seed)
    for buffers in (2, 3):
        config = replace(SingleConvConfig(*shape), BUFFERS=buffers)
        given: dict[str, Any] = {"algorithm": "persistent", "config": config}
        y = operators.conv2d(x, weight, bias, activation="silu", **given)
        assert off(y, x, weight, bias, "silu") <= 2 * ALLOWED["ieee"]
        assert y.is_contiguous(memory_format=torch.channels_last)
        plain = operators.conv2d(x.bfloat16(), weight.bfloat16(), **given)
        assert off(plain, x.bfloat16(), weight.bfloat16()) <= ALLOWED["ieee"]


def test_every_default_finds_room_on_a_multiprocessor() -> None:
    """For as many programs as it has: of its registers and of its shared memory."""
    op = SingleConv()
    for call in (call_of(32, *layer, bias=bias) for layer in LAYERS for bias in (False, True)):
        config = op.default(call)
        compiled, programs = emulated.compiled(op, config, call), config.programs(call)
        assert compiled.spill_bytes == 0 and not compiled.warnings
        assert compiled.shared_bytes <= config.shared_bytes
        assert programs * (config.shared_bytes + 1024) <= 228 * 1024
        assert programs * 128 * -(-compiled.registers // 8) * 8 <= 2**16


# (channels, filters, size) of 32 images: what an H200 was fastest with, or almost.
LAYERS = {
    (512, 2048, 7): SingleConvConfig(128, 128, BUFFERS=3),
    (256, 1024, 14): SingleConvConfig(128, 128, BUFFERS=2),
    (512, 128, 28): SingleConvConfig(64, 128, BUFFERS=3),
    (1024, 512, 14): SingleConvConfig(64, 128, BUFFERS=3),
    (2048, 512, 7): SingleConvConfig(64, 128, 128, BUFFERS=4),
    (1024, 256, 14): SingleConvConfig(128, 128, BUFFERS=6),
}
# What the persistent kernel was faster for, or was not compared for as the default would be.
OTHERS = (
    (128, 512, 28), (64, 256, 56), (256, 64, 56), (64, 64, 56), (512, 256, 28),
)  # fmt: skip


def test_the_default_of_a_layer() -> None:
    op = SingleConv()
    for layer, config in LAYERS.items():
        for call in (call_of(32, *layer), call_of(32, *layer, bias=True)):
            assert op.default(call) == config and op.is_faster(call)
    assert not any(op.is_faster(call_of(32, *layer)) for layer in OTHERS)
    padded = replace(call_of(32, 512, 2048, 7), padding=(1, 1), out_size=(9, 9))
    assert not op.is_faster(padded)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (SingleConvConfig(256), "BLOCK_M 256: allowed are 64, 128"),
        (SingleConvConfig(BUFFERS=8), "263168 bytes of shared memory: at most 232448"),
        (SingleConvConfig(BUFFERS=1), "BUFFERS 1: allowed are 2"),
    ],
)
def test_refused(config: SingleConvConfig, words: str, seed: int) -> None:
    x, weight, _ = drawn(40, seed)
    with pytest.raises(ValueError, match=words):
        operators.conv2d(x, weight, algorithm="persistent", config=config)
    with pytest.raises(ValueError, match="it takes one tap without padding"):
        operators.conv2d(x, weight, padding=1, algorithm="persistent", config=SMALL)


PLANTED = [
    ("(step // self.count) & 1", "((step // self.count) & 1) ^ 1"),
    ("warpgroup_mma_wait(1,", "warpgroup_mma_wait(2,"),
    ("    acc = warpgroup_mma_wait(0, deps=[acc])\n", ""),
    ("if step < steps:", "if step <= steps:"),
    ("later = step - 1 + BUFFERS", "later = step + BUFFERS"),
    ("step * x_desc.block_shape[1]", "step % 2 * x_desc.block_shape[1]"),
    ("x_desc.block_type.nbytes + w_desc", "w_desc"),
    ("s.filter + i * WIDTH]", "s.filter]"),
    ("% m_tiles * BLOCK_M", "% m_tiles * BLOCK_N"),
    ("mask=column < filters", "mask=column <= filters"),
    ("bias_s.index(i).store", "bias_s.index(0).store"),
    ("bias_s.index(i).load", "bias_s.index(0).load"),
]
if minor_of(triton.__version__) < (3, 7):  # later releases put the fence there themselves
    PLANTED.append(("        fence_async_shared()\n", ""))


@pytest.mark.parametrize("config", [SMALL, LONG], ids=["64 a step", "128"])
@pytest.mark.parametrize(("old", "new"), [("", ""), *PLANTED])
def test_planted_bugs_are_found(old: str, new: str, config: SingleConvConfig, seed: int) -> None:
    def right(op: SingleConv) -> bool:
        return all(one(op, channels) for channels in (40, 264))

    def one(op: SingleConv, channels: int) -> bool:
        call = replace(call_of(3, channels, 136, 7, bias=True), size=(7, 6), out_size=(7, 6))
        x, weight, bias = drawn(channels, seed)
        last = [t.contiguous(memory_format=torch.channels_last) for t in (x, weight)]
        out = torch.full((3, 136, 7, 6), float("nan"), dtype=torch.float16)
        out = out.contiguous(memory_format=torch.channels_last)
        emulated.run(op, config, call, (*last, out, bias))
        return off(out, x, weight, bias, "silu") <= 8

    mutant = planted(SingleConv(), single, old, new)
    assert found(lambda: right(mutant)) is bool(old)
